# SPDX-License-Identifier: Apache-2.0
"""Opens pages in headless Chromium, and reads what they show."""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser():
    return next((b for b in map(shutil.which, BROWSERS) if b), None)


class Page(html.parser.HTMLParser):
    """The elements of a page: [(tag, attributes, text with that of children)]."""
    EMPTY = {"meta", "link", "input", "br", "img"}

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.hidden = [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        element = [tag, dict(attributes), ""]
        self.elements.append(element)
        if tag not in self.EMPTY:
            self.open.append(element)

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self.open and self.open[-1][0] not in ("script", "style"):
            for element in self.open:
                element[2] += data
        elif self.open:
            self.open[-1][2] += data

    def find(self, tag=None, **attributes):
        """All elements with this tag and these attributes (data_value for data-value; None: any value)."""
        wanted = {k.replace("_", "-"): v for k, v in attributes.items()}
        return [e for e in self.elements if (tag is None or e[0] == tag)
                and all(k in e[1] and (v is None or e[1][k] == v) for k, v in wanted.items())]

    def value(self, name):
        return [float(e[1]["data-raw"]) if "data-raw" in e[1] else None for e in self.find(data_value=name)]


def show(path, width=1600, script=None, scheme=""):
    """Opens the page; returns it as it stands then, and the messages of its console. `script` runs behind the page's own."""
    with tempfile.TemporaryDirectory() as folder:
        if script:
            copy = os.path.join(folder, "page.html")
            with open(path, encoding="utf-8") as old, open(copy, "w", encoding="utf-8") as new:
                new.write(old.read().replace("</body>", "<script>%s</script></body>" % script))
            path = copy
        command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--user-data-dir=" + os.path.join(folder, "profile"), "--window-size=%d,2000" % width, "--virtual-time-budget=4000",
                   "--enable-logging=stderr", "--dump-dom", "file://" + os.path.abspath(path) + scheme]
        done = subprocess.run(command, capture_output=True, timeout=120 * int(os.environ.get("TRIREME_PATIENCE", "1")))
    text = done.stdout.decode("utf-8", "replace")
    messages = re.findall(r":CONSOLE[^\]]*\]\s*(.*)", done.stderr.decode("utf-8", "replace"))
    assert "</html>" in text, "the browser shows nothing: " + done.stderr.decode("utf-8", "replace")[-500:]
    return Page(text), messages


def report_in(path):
    """The report that the file has."""
    with open(path, encoding="utf-8") as file:
        return json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', file.read(), re.S).group(1))


def close(shown, true, what):
    assert shown is not None and abs(shown - true) <= 1e-6 * max(1, abs(true)), "%s: the page shows %r, the report has %r" % (what, shown, true)


def check_noise(folder):
    """A page that fails must be seen to fail."""
    path = os.path.join(folder, "broken.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write("<!DOCTYPE html><html><body><script>nothing.at.all();</script></body></html>")
    assert any("nothing is not defined" in m for m in show(path)[1]), "an error of a page is not noticed"


if __name__ == "__main__":
    sys.exit(0 if browser() else 77)
