"""A forked process works although its parent used threads, and as its user set it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FORKS = """
import multiprocessing, os
import torch
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig

texts = [f"one two {number} three four" for number in range(1000)]
tokenizer = TextTokenizer.train(texts, TokenizerConfig(size=60))
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
states = torch.randn(4096, 256)

def work():
    tokenizer.encode(texts)
    model(states).sum().backward()
    print(os.environ["TOKENIZERS_PARALLELISM"], torch.get_num_threads(), flush=True)

work()
child = os.fork()
if child == 0:
    work()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
"""


@pytest.mark.parametrize(("setting", "parent"), [(None, "true"), ("true", "true"), ("false", "false")])
def test_a_fork_after_the_first_use_of_threads_does_not_hang(setting: str | None, parent: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    environment |= {"OMP_NUM_THREADS": "2", "RAYON_NUM_THREADS": "2"}
    if setting:
        environment["TOKENIZERS_PARALLELISM"] = setting
    ran = subprocess.run([sys.executable, "-c", FORKS], env=environment, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [f"{parent} 2", "false 1", "false 1"]
