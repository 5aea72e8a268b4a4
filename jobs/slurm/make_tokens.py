"""Turns text into the flat file of tokens that the Llama trainers read with --data FOLDER.

Text: files named *.txt (one document each) and *.jsonl (one a line, in its field "text"), both also as *.gz, below
--text; without --text, sentences made up on the spot, to try it. Tokens: by a Hugging Face tokenizer that --tokenizer
names, or by a byte-level BPE that is trained on the text. Needs the package tokenizers, which transformers brings.

The folder gets tokens.bin, tokenizer.json, and last tokens.json, which says what is there.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

sys.path.insert(0, os.environ.get("TRAINING", "/opt/hyperpod/lib/training"))
import llama
import nanogpt

END = "<|endoftext|>"  # between documents; Llama's own tokenizers call it otherwise
ENDS = (END, "<|end_of_text|>", "</s>")
# Documents that the tokenizer gets at once (it uses every CPU for them), and characters that a new one learns from.
AT_ONCE, LEARNS_FROM = 1024, 200_000_000


def main() -> int:
    """Write the tokens; 0 also where they are there already."""
    options = _options().parse_args()
    out, record = Path(options.out), Path(options.out, llama.RECORD)
    if record.exists():
        print(f"{out} is complete: {record.read_text(encoding='utf-8').strip()}")
        return 0
    files = _files(Path(options.text)) if options.text else []
    aside = out.with_name(f".{out.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    tokenizer = _tokenizer(options, files)
    tokenizer.save(str(aside / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    kind = "uint16" if size <= 1 << 16 else "uint32"
    count = _write(aside / llama.TOKENS, tokenizer, files, kind, options.seed)
    found = {"tokens": count, "type": kind, "vocabulary": size, "end": _end(tokenizer)}
    (aside / llama.RECORD).write_text(json.dumps(found) + "\n", encoding="utf-8")
    out.parent.mkdir(parents=True, exist_ok=True)
    # An empty folder, or what an ended run has left, gives way.
    shutil.rmtree(out, ignore_errors=True)
    aside.rename(out)
    print(f"{out}: {count:,} tokens, vocabulary of {size}, {kind}")
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--text", help="folder, or one file (default: made-up sentences)")
    parser.add_argument("--out", required=True, help="folder to create")
    parser.add_argument("--tokenizer", help="name on the Hugging Face hub, or a tokenizer.json (default: train one)")
    parser.add_argument("--vocabulary", type=int, default=32000, help="of a tokenizer that is trained")
    parser.add_argument("--seed", type=int, default=1, help="of made-up sentences")
    return parser


def _files(text: Path) -> list[Path]:
    """Every file with text, in the order of their names. Raises SystemExit where there is none."""
    kinds = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")
    found = [text] if text.is_file() else sorted(p for p in text.rglob("*") if p.name.endswith(kinds) and p.is_file())
    if not found:
        raise SystemExit(f"--text {text}: no {', '.join('*' + kind for kind in kinds)} there")
    return found


def documents(files: list[Path], seed: int) -> Iterator[str]:
    """Each document's text. Raises SystemExit for a line that is no document."""
    if not files:
        yield from nanogpt.make_text(seed, 400_000).splitlines(keepends=True)
    for path in files:
        with _opened(path) as file:
            if ".jsonl" not in path.suffixes:
                yield file.read()
                continue
            for number, line in enumerate(file, 1):
                try:
                    yield str(json.loads(line)["text"])
                except (ValueError, KeyError, TypeError):
                    raise SystemExit(f'{path}:{number}: no JSON object with "text"') from None


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _tokenizer(options: argparse.Namespace, files: list[Path]) -> Any:
    if options.tokenizer:
        path = Path(options.tokenizer)
        return Tokenizer.from_file(str(path)) if path.is_file() else Tokenizer.from_pretrained(options.tokenizer)
    print(f"training a tokenizer on the first {LEARNS_FROM:,} characters at most", flush=True)
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocabulary,
        special_tokens=[END],
        initial_alphabet=alphabet,
        show_progress=sys.stdout.isatty(),
    )
    found.train_from_iterator(_some(documents(files, options.seed)), trainer)
    return found


def _some(texts: Iterator[str]) -> Iterator[str]:
    left = LEARNS_FROM
    for text in texts:
        if left <= 0:
            return
        yield text[:left]
        left -= len(text)


def _end(tokenizer: Any) -> int:
    """The token between documents. Raises SystemExit where the tokenizer has none of the usual names."""
    for name in ENDS:
        found = tokenizer.token_to_id(name)
        if found is not None:
            return int(found)
    raise SystemExit(f"this tokenizer has none of {', '.join(ENDS)}, to stand between documents")


def _write(path: Path, tokenizer: Any, files: list[Path], kind: str, seed: int) -> int:
    """Every document's tokens and one between documents; how many in all."""
    count, said, end = 0, time.monotonic(), _end(tokenizer)
    texts = documents(files, seed)
    with path.open("wb") as file:
        while some := list(itertools.islice(texts, AT_ONCE)):
            for one in tokenizer.encode_batch(some, add_special_tokens=False):
                numpy.array([*one.ids, end], dtype=kind).tofile(file)
                count += len(one.ids) + 1
            if time.monotonic() - said > 5:
                said = time.monotonic()
                print(f"{count:,} tokens", flush=True)
        file.flush()
        os.fsync(file.fileno())
    return count


if __name__ == "__main__":
    sys.exit(main())
