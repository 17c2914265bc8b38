"""What the check of the manual finds, and what it lets pass."""

from __future__ import annotations

import tomllib
import unittest

from check import HERE, RIDDLE, Words, of_sentence, parts_of_pages
from text import blocks, sentences


class Text(unittest.TestCase):
    def test_blocks_have_their_lines_and_no_code(self) -> None:
        table = "| a | b |\n|---|---|\n| c | d |\n"
        page = "# A title\n\nOne `--flag`\nand [a link](x.md).\n\n```sh\ncode anew\n```\n\n" + table
        found = [(block.kind, block.line, block.text) for block in blocks(page)]
        cells = [("th", 10, "a"), ("th", 10, "b"), ("td", 12, "c"), ("td", 12, "d")]
        self.assertEqual(found, [("h1", 1, "A title"), ("p", 3, "One Code\nand a link."), *cells])

    def test_sentences_end_where_readers_stop(self) -> None:
        (block,) = blocks("It takes 0.5 s, e.g. Here.\nThen `x` ends. (So it is.) No more")
        found = [(one.line, one.text) for one in sentences(block)]
        wanted = [(1, "It takes 0.5 s, e.g. Here."), (2, "Then Code ends."), (2, "(So it is.)"), (2, "No more")]
        self.assertEqual(found, wanted)


class Rules(unittest.TestCase):
    def test_words_are_found_with_their_line(self) -> None:
        words = Words(tomllib.loads((HERE / "words.toml").read_text()))
        (block,) = blocks("The alarm\nrings anew, and `anew` of its\nown. A string, a bring, a renewal.")
        found = [(fault.line, fault.what.split(":")[0]) for fault in words.faults("page", block)]
        self.assertEqual(sorted(found), [(2, '"anew"'), (2, '"of its own"'), (2, '"rings"')])

    def test_long_sentences_are_found(self) -> None:
        for count, faults in ((35, 0), (36, 1)):
            (block,) = blocks("word " * count + ".")
            (one,) = sentences(block)
            self.assertEqual(len(list(of_sentence("page", one))), faults)

    def test_a_clause_is_no_subject(self) -> None:
        for riddle in ("What it has lost is lost.", "Whatever it says goes on.", "Who asks for it gets it."):
            self.assertTrue(RIDDLE.match(riddle), riddle)
        for plain in ("What leaves the device?", "What you see: a list of names.", "What it needs.", "It has it."):
            self.assertFalse(RIDDLE.match(plain), plain)

    def test_pages_have_the_part_that_they_are_in(self) -> None:
        summary = "# Summary\n\n# Do\n\n- [A]()\n    - [B](b.md)\n\n# Look up\n\n- [C](c/d.md)\n"
        self.assertEqual(parts_of_pages(summary), {"docs/b.md": "Do", "docs/c/d.md": "Look up"})


if __name__ == "__main__":
    unittest.main()
