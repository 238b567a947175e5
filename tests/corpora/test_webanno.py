"""WebAnno TSV, as WebAnno and INCEpTION export it."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import UserError
from corpora.notes import Notes
from corpora.standoff import webanno
from tests.corpora.test_marked_texts import said, words

WEBANNO = """#FORMAT=WebAnno TSV 3.3
#T_SP=webanno.custom.Entity|value
#T_RL=webanno.custom.Relation|role|BT_webanno.custom.Entity


#Text=😀 Xolidan eased the dry cough.
1-1\t0-2\t😀\t_\t_\t_
1-2\t3-10\tXolidan\tDrug|*\t_\t_
1-3\t11-16\teased\t_\t_\t_
1-4\t17-20\tthe\t_\t_\t_
1-5\t21-24\tdry\tSymptom[1]\teases\t1-3[0_1]
1-6\t25-30\tcough\tSymptom[1]\t_\t_
1-7\t30-31\t.\t_\t_\t_
"""


def test_webanno_stacks_numbers_and_counts_in_utf_16(tmp_path: Path) -> None:
    path = tmp_path / "n.tsv"
    path.write_text(WEBANNO, "utf-8")
    notes = Notes()
    (found,) = webanno.webanno(path, notes)
    assert words(found) == [("Xolidan", "Drug"), ("Xolidan", "Entity"), ("dry cough", "Symptom")]
    what = "relations between words that are not marked, or not by one mark"
    assert not found.links and said(notes) == {("skipped", what): 1}
    path.write_text(WEBANNO.replace("Drug|*", "Drug[2]").replace("1-3[0_1]", "1-2[2_1]"), "utf-8")
    (found,) = webanno.webanno(path, notes)
    (link,) = found.links
    known = found.by_id()
    assert (found.quoted(known[link.head]), found.quoted(known[link.tail])) == (
        "Xolidan",
        "dry cough",
    )


def test_webanno_layers_as_inception_writes_them(tmp_path: Path) -> None:
    """The type is not the first feature, grammar is no entity, and relations may have no name."""
    core = "de.tudarmstadt.ukp.dkpro.core.api"
    head = (
        "#FORMAT=WebAnno TSV 3.3",
        f"#T_SP={core}.lexmorph.type.pos.POS|PosValue|coarseValue",
        f"#T_SP={core}.ner.type.NamedEntity|identifier|value",
        f"#T_SP={core}.segmentation.type.Lemma|value",
        f"#T_RL={core}.syntax.type.dependency.Dependency|DependencyType|BT_{core}.lexmorph.type.pos.POS",
        "#T_SP=webanno.custom.Empty|",
        f"#T_RL=webanno.custom.Eases|BT_{core}.ner.type.NamedEntity",
        "",
        "#Text=Xolidan eased dry cough",
        "1-1\t0-7\tXolidan\tN\tN\thttp://kb/Q1\tDrug\tx\tsubj\t1-2\t_\t_\t",
        "1-2\t8-13\teased\tV\tV\t_\t_\tease\t_\t_\t*\t_\t",
        "1-3\t14-17\tdry\tA\tA\t*[1]\tSymptom[1]\tdry\t_\t_\t_\t1-1[0_1]\t",
        # other programs write the sign for no mark where a feature is empty
        "1-4\t18-23\tcough\tN\tN\t_\tSymptom[1]\tcough\t_\t_\t_\t_\t",
    )
    path = tmp_path / "n.tsv"
    path.write_text("\n".join(head) + "\n", "utf-8")
    notes = Notes()
    (found,) = webanno.webanno(path, notes)
    marked = [("Xolidan", "Drug"), ("dry cough", "Symptom"), ("eased", "Empty")]
    assert sorted(words(found)) == sorted(marked)
    assert [m.concepts for m in found.mentions if m.type == "Drug"] == [("http://kb/Q1",)]
    (link,) = found.links
    ends = [found.quoted(found.by_id()[e]) for e in (link.head, link.tail)]
    assert (link.name, ends) == ("Eases", ["Xolidan", "dry cough"])
    assert said(notes) == {("skipped", "layers of parts of speech, lemmas or syntax"): 3}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("17-20\tthe", "17-20\tTHE", r'line 10: the word "THE" is not where its offsets say'),
        ("\t_\t_\t_\n1-4", "\t_\t_\n1-4", r"line 9: 5 columns, and the layers of the head need 6"),
        ("|BT_webanno.custom.Entity", "", r"line 3: a layer of relations names its ends with BT_"),
    ],
)
def test_webanno_damaged(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "n.tsv"
    path.write_text(WEBANNO.replace(old, new), "utf-8")
    with pytest.raises(UserError, match=message):
        list(webanno.webanno(path, Notes()))
