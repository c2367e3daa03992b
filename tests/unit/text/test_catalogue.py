"""Reading .po files."""

from trainprobe.text.catalogue import originals, read

PO = r"""
# A comment
msgid ""
msgstr "Language: zh\n"

#, python-brace-format
msgctxt "a.b"
msgid ""
"say \"{what}\" "
"and more"
msgstr "说 “{what}”\\"

msgid "{number} step"
msgid_plural "{number} steps"
msgstr[0] "{number} 步"

msgid "not translated"
msgstr ""

#~ msgid "gone"
#~ msgstr "没了"

msgid "word"
msgstr "词"
"""


def test_an_entry_is_found_by_its_id_or_else_by_its_text() -> None:
    found = read(PO)
    assert found.messages == {"a.b": "说 “{what}”\\"}
    assert found.programs == {"{number} step": "{number} 步", "{number} steps": "{number} 步", "word": "词"}
    assert originals(PO) == {"a.b": 'say "{what}" and more'}


def test_a_language_of_two_forms() -> None:
    two = 'msgid "a step"\nmsgid_plural "steps"\nmsgstr[0] "ein Schritt"\nmsgstr[1] "Schritte"\n'
    assert read(two).programs == {"a step": "ein Schritt", "steps": "Schritte"}
