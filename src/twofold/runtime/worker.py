"""Process that encodes candidates for another one: `python -m twofold.runtime.worker`, asked on its standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from twofold.errors import TwofoldError, one_line
from twofold.runtime.frames import Frame, receive, send

Encode = Callable[[Sequence[Any]], Sequence[NDArray[Any]]]
"""Function from the token ids of texts to their vectors, (vectors, width), and the number of each."""


def main() -> None:
    """Answers messages until there are no more."""
    output, sys.stdout = _standard_output(), sys.stderr
    given = receive(sys.stdin.buffer)
    if given is None:
        return
    try:
        model, encode = opened(given.about)
        send(output, Frame({"model": model}))
        while (asked := receive(sys.stdin.buffer)) is not None:
            lengths, tokens = asked.arrays
            send(output, Frame({}, encode(np.split(tokens, np.cumsum(lengths)[:-1]))))
    except TwofoldError as error:
        send(output, Frame({"error": one_line(str(error))}))


def opened(about: Mapping[str, Any]) -> tuple[str, Encode]:
    """Returns the fingerprint of a model, and what encodes candidates by it: without torch where that is prepared."""
    from twofold.runtime.light_ranker import find_ranker

    how = {name: about[name] for name in ("name", "runtime", "precision")}
    light = None if about["reversed"] else find_ranker(**how)
    if light is None:
        from twofold.runtime.encoding import encoder_named

        return encoder_named(**how, reverse=about["reversed"], allow_code=about["allow_code"])
    return light.fingerprint(), lambda items: present(*light.candidates.represent(items))


def present(vectors: NDArray[Any], there: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Real vectors, one text after another, and the number of each."""
    return vectors[there], there.sum(1)


def _standard_output() -> IO[bytes]:
    """Standard output for messages alone: what libraries print goes to standard error."""
    copy = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(copy, "wb")


if __name__ == "__main__":
    main()
