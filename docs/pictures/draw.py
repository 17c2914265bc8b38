#!/usr/bin/env python3
"""Draws the manual's diagrams as SVG, readable on light and on dark pages.

    draw.py             writes them next to this file
    draw.py --check     says which of them are not as this file draws them
"""

import pathlib
import sys
from xml.sax.saxutils import escape

HERE = pathlib.Path(__file__).resolve().parent
WIDTH = 760
LINE = 19

# Each kind of box: fill and edge on a light page, then on a dark one.
KINDS = {
    "device": ("#e9f1fd", "#2f6fd0", "#17263d", "#6ea2ee"),
    "server": ("#e9f6ec", "#2b8a50", "#14301f", "#5fbf86"),
    "other": ("#fdf2e3", "#b9701a", "#38280f", "#dfa04f"),
    "plain": ("#f3f4f6", "#8a93a1", "#232a33", "#7c8695"),
}
LIGHT = {"page": "#ffffff", "ink": "#1c222b", "soft": "#545d6a"}
DARK = {"page": "#12161c", "ink": "#e8ebf0", "soft": "#aab3c0"}


def style():
    def rules(colours, at):
        yield f".page {{ fill: {colours['page']} }}"
        yield f"text {{ fill: {colours['ink']} }} .soft {{ fill: {colours['soft']} }}"
        yield f".line {{ stroke: {colours['soft']} }} .tip {{ fill: {colours['soft']} }}"
        for kind, shades in KINDS.items():
            yield f".{kind} {{ fill: {shades[at]}; stroke: {shades[at + 1]} }}"

    return "\n".join([
        "text { font: 14px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }",
        ".name { font-weight: 600 } .small { font-size: 13px }",
        ".line { fill: none; stroke-width: 1.6 } .dashed { stroke-dasharray: 6 5 }",
        *rules(LIGHT, 0),
        "@media (prefers-color-scheme: dark) {",
        *rules(DARK, 2),
        "}",
    ])


class Picture:
    def __init__(self, name, height, title, about):
        self.name, self.height, self.title, self.about = name, height, title, about
        self.parts = []

    def text(self, x, y, words, look="", anchor="middle"):
        self.parts.append(f'<text x="{x}" y="{y}" class="{look}" text-anchor="{anchor}">{escape(words)}</text>')

    def box(self, x, y, width, height, kind, name="", *lines):
        """A box with its name, and lines below it, in the middle; without lines a group with its name on top."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" class="{kind}"/>')
        middle = x + width / 2
        top = y + height / 2 - LINE * len(lines) / 2 + 5
        self.text(middle, top, name, "name")
        for at, line in enumerate(lines, 1):
            self.text(middle, top + LINE * at, line, "small soft")

    def group(self, x, y, width, height, kind, name):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" class="{kind}"/>')
        self.text(x + 14, y + 23, name, "name", "start")

    def arrow(self, *points, both=False, dashed=False):
        path = " L".join(f"{x} {y}" for x, y in points)
        ends = ' marker-end="url(#tip)"' + (' marker-start="url(#tip)"' if both else "")
        self.parts.append(f'<path d="M{path}" class="line{" dashed" if dashed else ""}"{ends}/>')

    def border(self, x, top, bottom):
        self.parts.append(f'<path d="M{x} {top} V{bottom}" class="line dashed"/>')

    def svg(self):
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}"'
            f' height="{self.height}" role="img" aria-labelledby="title about">',
            f'<title id="title">{escape(self.title)}</title>',
            f'<desc id="about">{escape(self.about)}</desc>',
            f"<style>\n{style()}\n</style>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
            ' orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" class="tip"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{self.height}" rx="6" class="page"/>',
            *self.parts,
            "</svg>\n",
        ])


def architecture():
    it = Picture(
        "architecture", 372, "The parts of Bandana",
        "An app holds the client. It calls the server, directly or through a relay. Operators call the server"
        " on another port. The server keeps everything in its store.",
    )
    it.group(16, 16, 200, 220, "device", "Device")
    it.box(36, 52, 160, 48, "plain", "Your app")
    it.arrow((96, 100), (96, 136))
    it.text(88, 123, "reward", "small soft", "end")
    it.arrow((136, 136), (136, 100))
    it.text(144, 123, "arm", "small soft", "start")
    it.box(36, 136, 160, 84, "plain", "Client", "draws arms and bits,", "keeps a ledger on disk")
    it.box(264, 137, 168, 82, "other", "Relay", "run by somebody else,", "hides addresses")
    it.text(348, 240, "optional", "small soft")
    it.group(494, 16, 250, 340, "server", "Server (aggregator)")
    it.box(510, 52, 218, 52, "plain", "Device service", "checks uploads")
    it.box(510, 146, 118, 66, "plain", "Gateway", "opens what", "was sealed")
    it.box(640, 236, 88, 52, "plain", "Writer", "counts")
    it.box(510, 236, 102, 52, "plain", "Learner", "weighs arms")
    it.box(510, 306, 218, 40, "plain", "SQLite or PostgreSQL")
    it.box(16, 276, 416, 80, "plain", "Operators", "command line, dashboard, scripts")
    it.arrow((196, 178), (264, 178), both=True)
    it.arrow((432, 178), (510, 178), both=True)
    it.arrow((216, 78), (510, 78), both=True)
    it.text(350, 69, "reports and policies: port 7301", "small soft")
    it.arrow((569, 146), (569, 104))
    it.arrow((684, 104), (684, 236))
    it.arrow((640, 262), (612, 262))
    it.arrow((684, 288), (684, 306))
    it.arrow((432, 316), (494, 316), both=True)
    it.text(463, 306, "7302", "small soft")
    return it


def reward():
    it = Picture(
        "reward", 286, "The way of a reward at ε = 1",
        "A reward of 1 becomes the bit 1 with probability 0.73 and the bit 0 with probability 0.27. Only the"
        " bit leaves the device. The server adds bits up, and its learner turns the sums into weights.",
    )
    it.group(16, 16, 436, 204, "device", "On the device")
    it.box(36, 70, 100, 84, "plain", "User taps", "reward 1")
    it.arrow((136, 112), (186, 112))
    it.box(186, 70, 116, 84, "plain", "Privatizer", "draws one bit,", "ε = 1")
    it.arrow((302, 96), (352, 82))
    it.arrow((302, 128), (352, 144))
    it.box(352, 58, 84, 46, "plain", "1", "odds .73")
    it.box(352, 122, 84, 46, "plain", "0", "odds .27")
    it.text(234, 190, "Without a tap the odds are the other way round.", "small soft")
    it.text(234, 209, "A bit leaves in both cases, at a random time.", "small soft")
    it.border(474, 16, 220)
    it.group(496, 16, 248, 204, "server", "On the server")
    it.arrow((436, 82), (516, 96))
    it.arrow((436, 144), (516, 124))
    it.box(516, 74, 94, 74, "plain", "Tally", "sum of bits", "of each arm")
    it.arrow((610, 111), (640, 111))
    it.box(640, 74, 90, 74, "plain", "Learner", "weights of", "the arms")
    it.text(596, 190, "Many bits tell the best arm.", "small soft")
    it.text(596, 209, "One bit leaves doubt.", "small soft")
    it.arrow((708, 148), (708, 252), (234, 252), (234, 220))
    it.text(474, 244, "policy: devices draw the next arms by these weights", "small soft")
    it.text(474, 274, "Nothing to the right of the dashed line ever held a reward.", "small soft")
    return it


def relay():
    it = Picture(
        "relay", 246, "What a relay sees, and what the aggregator sees",
        "A device seals its call for the gateway. The relay sees the address and sealed bytes. The aggregator"
        " opens them and sees the address of the relay only.",
    )
    for x, kind, name, first, second in (
        (16, "device", "Device", "seals each call", "for the gateway"),
        (290, "other", "Relay", "waits for a random time,", "passes sealed bytes on"),
        (564, "server", "Aggregator", "is the gateway:", "opens the call"),
    ):
        it.box(x, 40, 180, 92, kind, name, first, second)
    it.arrow((196, 72), (290, 72))
    it.arrow((290, 104), (196, 104))
    it.text(243, 62, "sealed call", "small soft")
    it.text(243, 124, "answer", "small soft")
    it.arrow((470, 72), (564, 72))
    it.arrow((564, 104), (470, 104))
    it.text(517, 62, "sealed call", "small soft")
    it.text(517, 124, "answer", "small soft")
    it.text(380, 26, "run by somebody else", "small soft")
    for x, yes, no in ((380, "sees the address of the device,", "and not what is said"),
                       (654, "sees what is said,", "and not from where")):
        it.text(x, 160, yes, "small")
        it.text(x, 179, no, "small")
    it.text(380, 222, "Nobody sees both sides, unless relay and aggregator work together.", "small soft")
    return it


def transparency():
    it = Picture(
        "transparency", 388, "How a public log shows all devices the same",
        "The server writes an epoch into a tree of hashes and signs its root. Witnesses check that the tree has"
        " only grown, and sign. Devices take only what the tree holds and enough witnesses have signed.",
    )
    it.group(16, 16, 300, 262, "server", "Server: the log")
    it.text(166, 66, "root, signed", "small soft")
    for x, y in ((166, 88), (92, 140), (240, 140)):
        it.parts.append(f'<circle cx="{x}" cy="{y}" r="11" class="plain"/>')
    for begin, end in (((166, 88), (92, 140)), ((166, 88), (240, 140)), ((92, 140), (58, 190)),
                       ((92, 140), (126, 190)), ((240, 140), (206, 190)), ((240, 140), (274, 190))):
        (x, y), (to_x, to_y) = begin, end
        it.parts.insert(0, f'<path d="M{x} {y} L{to_x} {to_y}" class="line"/>')
    # The lines lie on the group, and below the circles.
    it.parts.insert(0, it.parts.pop(6))
    for at, x in enumerate((58, 126, 206, 274), 1):
        it.parts.append(f'<rect x="{x - 30}" y="180" width="60" height="40" rx="6" class="plain"/>')
        it.text(x, 205, f"epoch {at}", "small")
    it.text(166, 246, "In an epoch, for each experiment:", "small soft")
    it.text(166, 264, "specification, policy, id of the store", "small soft")
    for at, y in enumerate((16, 108, 200), 1):
        it.box(540, y, 204, 78, "other", f"Witness {at}", "signs only a tree that", "has only grown")
        it.arrow((316, 150 if at == 2 else 120 + 30 * (at - 1)), (540, y + 39), both=True)
    it.text(428, 30, "the new root goes,", "small soft")
    it.text(428, 49, "a signature comes", "small soft")
    it.box(16, 316, 728, 56, "device", "Every device",
           "takes only what is in the last epoch of a tree that enough witnesses have signed")
    it.arrow((166, 278), (166, 316))
    it.text(178, 302, "what was asked for, with its proof and the signatures", "small soft", "start")
    return it


def main():
    stale = []
    for picture in (architecture(), reward(), relay(), transparency()):
        file = HERE / f"{picture.name}.svg"
        drawn = picture.svg()
        if sys.argv[1:] != ["--check"]:
            file.write_text(drawn)
        elif not file.exists() or file.read_text() != drawn:
            stale.append(file.name)
    if stale:
        sys.exit(f"docs/pictures/draw.py draws other pictures; run it: {', '.join(stale)}")


if __name__ == "__main__":
    main()
