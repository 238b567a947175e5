"""What a silo writes down for its own officer: on the disk before it leaves, whoever is killed when."""

from __future__ import annotations

from pathlib import Path

from report.documents import bytes_of
from report.files import read_lines
from silo.papers import _rounds
from silo.record import Record
from tests.faults.world import tiny
from wire import messages as m

HELLO = m.Hello("1", b"", {})


def _record(folder: Path) -> Record:
    return Record(folder, "silo-000", tiny("fedavg").method, {"silo-001": "east"})


def _what(folder: Path) -> list[str]:
    return [x["what"] for x in read_lines(folder / "left.jsonl")]


def _broadcast() -> m.Broadcast:
    return m.Broadcast(
        number=1,
        round=0,
        exchange=0,
        cohort=[],
        common=[],
        private=[],
        header={},
        encoding={},
    )


def test_what_is_sent_is_counted_before_it_leaves(tmp_path: Path) -> None:
    record = _record(tmp_path)
    record.dialled()
    record.sending(HELLO, None)
    record.heard(m.Welcome(b"r", 0), None)
    sent = bytes_of(read_lines(tmp_path / "traffic.jsonl"))
    assert sent["by_kind"]["up, hello, control"][0] == 1 and sent["messages_down"] == 2
    record.heard(_broadcast(), None)
    record.sending(m.SumStart(1, {}), None)
    record.sending(m.Chunk(1, "masked", 0), memoryview(bytes(1000)))
    # killed now: nothing is flushed or closed, and all of it is there
    left = bytes_of(read_lines(tmp_path / "traffic.jsonl"))
    assert left["by_channel"]["up, masked"] > 1000 and left["messages_up"] == 4
    assert _what(tmp_path) == ["connected", "left", "left"]
    assert read_lines(tmp_path / "left.jsonl")[0]["computes_on"] == "cpu"
    # started again, it goes on in the same round
    again = _record(tmp_path)
    again.dialled()
    again.heard(m.Welcome(b"r", 0), None)
    assert read_lines(tmp_path / "left.jsonl")[-1]["round"] == 0


def test_what_a_power_loss_left_of_a_line_is_cut_before_the_next_one(tmp_path: Path) -> None:
    first = _record(tmp_path)
    first.dialled()
    first.heard(m.Welcome(b"r", 0), None)
    for name in ("left.jsonl", "traffic.jsonl"):
        with (tmp_path / name).open("ab") as f:
            f.write(b'{"what": "le')  # never finished, so nothing of it left
    before = bytes_of(read_lines(tmp_path / "traffic.jsonl"))
    again = _record(tmp_path)
    assert bytes_of(read_lines(tmp_path / "traffic.jsonl")) == before
    again.dialled()
    again.heard(m.Welcome(b"r", 0), None)
    assert _what(tmp_path) == ["connected", "connected"]
    counted = bytes_of(read_lines(tmp_path / "traffic.jsonl"))
    assert counted["bytes_down"] == 2 * before["bytes_down"] > 0


def test_a_greeting_that_nobody_heard_never_left(tmp_path: Path) -> None:
    record = _record(tmp_path)
    for _ in range(3):  # the coordinator does not listen yet
        record.dialled()
        record.sending(HELLO, None)
        record.cut(stood=False)
    assert bytes_of(read_lines(tmp_path / "traffic.jsonl"))["bytes_up"] == 0
    assert _what(tmp_path) == []
    record.dialled()
    record.sending(HELLO, None)
    record.heard(m.Welcome(b"r", 0), None)
    record.cut(stood=True)
    assert bytes_of(read_lines(tmp_path / "traffic.jsonl"))["by_kind"]["up, hello, control"][0] == 1
    assert _what(tmp_path) == ["connected", "connection lost"]
    # it was there, and died before it said a word: what was sent may have arrived
    record.dialled()
    record.sending(HELLO, None)
    record.cut(stood=True)
    assert bytes_of(read_lines(tmp_path / "traffic.jsonl"))["by_kind"]["up, hello, control"][0] == 2
    assert _what(tmp_path) == ["connected", "connection lost"] * 2


def test_a_round_whose_sum_was_given_up_is_not_counted_for_sure(tmp_path: Path) -> None:
    record = _record(tmp_path)
    record.dialled()
    record.heard(_broadcast(), None)
    record.sending(m.SumStart(1, {}), None)
    record.heard(m.SumStep("unmask", {"survivors": ["silo-000", "silo-001"]}), None)
    record.sending(m.SumStep("release", {}), None)

    def rounds() -> dict[str, list[int]]:
        return _rounds(read_lines(tmp_path / "left.jsonl"), "silo-000")

    assert rounds() == {"rounds": [0], "rounds_unsure": []}
    record.heard(m.Closed(1, False), None)
    assert rounds() == {"rounds": [], "rounds_unsure": [0]}
    # tried again, and opened
    record.sending(m.SumStep("release", {}), None)
    record.heard(m.Closed(2, True), None)
    assert rounds() == {"rounds": [0], "rounds_unsure": []}
