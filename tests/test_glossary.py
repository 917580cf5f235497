"""docs/glossary.md has every term of the project's vocabulary, and each place in the code that it names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import twofold

DOCS = Path(__file__).parents[1] / "docs"
SOURCE = Path(twofold.__file__).parent
TERMS = """
encoder, decoder, bi-encoder, poly-encoder, cross-encoder, pooling, in-batch negatives, hard negatives,
gradient caching, distillation, two towers, late interaction, cascade, re-ranking, top-k, certificate, exact search,
approximate search, embedding, token, sub-word, positional encoding, multi-head attention, self-attention,
cross-attention, padding mask, look-ahead mask, causal mask, teacher forcing, scheduled sampling, label smoothing,
greedy search, beam search, length penalty, layer normalization, batch normalization, residual connection,
skip connection, transposed convolution, feature map, patch, image, masked language model, next-utterance prediction,
denoising, fine-tuning, freezing, gradual unfreezing, layer-wise learning-rate decay, learning-rate multiplier,
exponential moving average, catastrophic forgetting, entity span, BIO, biaffine parser, maximum spanning tree,
validation split, checkpoint, epoch, step
"""
"""The project's vocabulary: the terms that a reader of the literature searches for."""
KINDS_OF_ENCODING = ("sinusoidal", "learned", "rotary")
terms = [term.strip() for term in TERMS.replace("\n", " ").split(",")]

OTHER_SPELLINGS = {
    "encoder": "엔코더|부호화기",
    "decoder": "복호화기|디코더기",
    "hidden states": "숨은 상태|히든",
    "token": "토근|토크\\b",
    "sub-word": "하위 단어|부분 단어|서브 워드",
    "tokenizer": "토큰화기|토커나이저",
    "embedding": "임배딩|매립",
    "attention": "주의 집중|주목|주의 메커니즘",
    "self-attention": "자기 ?어텐션|자가 ?어텐션|셀프어텐션",
    "cross-attention": "교차 ?어텐션|크로스어텐션",
    "multi-head attention": "다중 ?헤드|멀티헤드",
    "residual connection": "잔여 연결|레지듀얼",
    "skip connection": "스킵연결|건너뛰기 연결|스킵 커넥션",
    "feature map": "피처 ?맵|특성 ?맵|특징맵",
    "transposed convolution": "역합성곱|디컨볼루션|전치 컨볼루션",
    "image": "그림|사진",
    "context": "컨텍스트|맥락|콘텍스트",
    "candidate": "후보자",
    "ranker": "랭킹기|순위기",
    "late interaction": "후기 상호 작용|늦은 상호작용|지연 상호작용",
    "two towers": "두 탑|투타워",
    "in-batch negatives": "배치 내 음성|배치 내 부정|인배치",
    "hard negatives": "하드 네가티브|어려운 네거티브",
    "gradient caching": "그라디언트|그레이디언트|기울기",
    "distillation": "증류 학습|디스틸레이션",
    "re-ranking": "재정렬|리랭킹|재랭킹|다시 정렬",
    "top-k": "톱 ?k|탑 ?k",
    "certificate": "인증서|증명서",
    "teacher forcing": "교사 강요|교사 강제",
    "label smoothing": "라벨 스무딩|레이블 평활화",
    "greedy search": "탐욕|그리디 탐색|그리디서치",
    "beam search": "빔 탐색|빔서치",
    "length penalty": "길이 벌점|길이 패널티",
    "entity span": "개체명 범위|엔티티",
    "metric": "메트릭|(?<!평가 )지표",
    "loss": "(?<!크)로스\\b",
    "batch": "뱃치|배취",
    "step": "스탭",
    "epoch": "에포크|에폭스|이포크",
    "learning rate": "학습율|러닝 ?레이트",
    "validation split": "검증 데이터|검증 분할|검증 집합",
    "checkpoint": "체크 포인트|검사점",
    "masked language model": "마스킹 언어 모델|마스크드 언어 모델|마스크된 언어 모델",
    "fine-tuning": "파인 튜닝|미세 ?조정",
    "freezing": "프리징|얼리기",
    "gradual unfreezing": "점진적 해동|점진적인 동결 해제",
    "augmentation": "데이터 증대|데이터 확장",
}
"""Spellings of a term in Korean that the glossary does not have, as patterns."""


@cache
def entries() -> dict[str, tuple[str, str, str, str]]:
    """Korean term, meaning, file and name of each entry, by its term."""
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| `([\w/.]+)` · `([\w.]+)` \|$", text, re.M)
    assert len(rows) == len(re.findall(r"^\| (?!term|---)", text, re.M))
    assert len({term for term, *_ in rows}) == len(rows)
    return {term: (korean, meaning, file, name) for term, korean, meaning, file, name in rows}


def names_in(node: ast.AST) -> Iterator[str]:
    """Names that a module or a class defines: classes, functions, settings and attributes of `self`."""
    for inner in ast.walk(node):
        match inner:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=target) | ast.Assign(targets=[*_, target]):
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                for place in names:
                    yield place.attr if isinstance(place, ast.Attribute) else ast.unparse(place)


@pytest.mark.parametrize("term", [*terms, *(f"{kind} positional encoding" for kind in KINDS_OF_ENCODING)])
def test_the_glossary_has_the_term_with_its_korean(term: str) -> None:
    korean, meaning, _, _ = entries()[term]
    assert re.search("[가-힣]", korean)
    assert meaning.endswith(".")


def test_one_korean_spelling_for_each_term() -> None:
    korean = [entry[0] for entry in entries().values()]
    assert len(set(korean)) == len(korean)


@pytest.mark.parametrize("term", entries())
def test_the_place_in_the_code_exists(term: str) -> None:
    _, _, file, name = entries()[term]
    node: ast.AST = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    for part in name.split("."):
        assert part in set(names_in(node)), f"{file} does not define {name}"
        classes = (inner for inner in ast.walk(node) if isinstance(inner, ast.ClassDef) and inner.name == part)
        node = next(classes, node)


@pytest.mark.parametrize("term", [*terms, *KINDS_OF_ENCODING, "EMA"])
def test_the_docs_use_the_term(term: str) -> None:
    pages = [page for page in DOCS.glob("*.md") if page.name not in ("glossary.md", "settings.md")]
    text = " ".join(page.read_text(encoding="utf-8") for page in pages)
    words = r"\s+".join(map(re.escape, term.split()))
    assert re.search(rf"\b{words}(s|es)?\b", text, re.I), f"no page of docs/ has '{term}'"


def test_the_korean_readme_spells_terms_as_the_glossary_does() -> None:
    text = (DOCS.parent / "README.ko.md").read_text(encoding="utf-8")
    assert set(OTHER_SPELLINGS) <= set(entries())
    misspelled = {term: re.findall(pattern, text) for term, pattern in OTHER_SPELLINGS.items()}
    assert not {term: words for term, words in misspelled.items() if words}


def test_no_term_is_spelled_in_another_way_within_the_glossary() -> None:
    for term, pattern in OTHER_SPELLINGS.items():
        assert not re.search(pattern, entries()[term][0]), term
