"""tools/site builds a site whose links work, which loads nothing from other servers, and which fits
a phone."""

import glob
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "support"), os.path.join(ROOT, "tools", "lib")]
import emulated  # noqa: E402
import markdown_text  # noqa: E402
from emulated import Failure  # noqa: E402

LIMIT_S = 240  # seconds suffice; other tests may share the machine
PHONE_WIDTH_PX = 390
PHONE_PAGES = ("index.html", "docs/index.html", "docs/profiles.html", "docs/abi.html",
               "docs/faults.html", "docs/ci.html")
MADE_BY_MKDOCS = {"404.html", "search.html"}  # linked by the web server and the search box
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(html.parser.HTMLParser):
    """A page's links, anchors, title, counted elements, and what a browser loads with it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.ids, self.loads, self.title, self.in_title = [], set(), [], "", False
        self.counts = {"pre": 0, "table": 0}
        with open(path) as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.add(attrs.get("id"))
        self.in_title = tag == "title"
        if tag in self.counts:
            self.counts[tag] += 1
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if attrs.get(LOADING.get(tag)) and attrs.get("rel") != "canonical":
            self.loads.append(attrs[LOADING[tag]])

    def handle_endtag(self, tag):
        if tag == "title":
            self.in_title = False

    def handle_data(self, data):
        if self.in_title:
            self.title += data.strip()


class Site:
    """A built site. A context manager that removes it."""

    def __enter__(self):
        self.top = tempfile.mkdtemp(prefix="rdmaemu-site-test-")
        self.directory = os.path.join(self.top, "site")
        done = build(self.directory)
        if done.returncode != 0 or done.stdout:
            raise Failure("status %d\n%s" % (done.returncode, done.stdout))
        self.pages = {os.path.relpath(path, self.directory): Page(path) for path in glob.glob(
            os.path.join(self.directory, "**", "*.html"), recursive=True)}
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.top, ignore_errors=True)

    def target(self, page, link):
        """Returns (file, anchor) of a link, or None for a link to elsewhere."""
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            return None
        path = urllib.parse.unquote(parts.path)
        file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        return file, urllib.parse.unquote(parts.fragment)


def build(directory):
    return subprocess.run([os.path.join(ROOT, "tools", "site"), directory], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=LIMIT_S)


def links_and_anchors_exist(site):
    wrong, checked = [], 0
    for name, page in site.pages.items():
        if name == "404.html":  # its links begin at the web server's root
            continue
        for file, anchor in filter(None, (site.target(name, link) for link in page.links)):
            checked += 1
            if not os.path.isfile(os.path.join(site.directory, file)):
                wrong.append("%s: there is no %s" % (name, file))
            elif anchor and file in site.pages and anchor not in site.pages[file].ids:
                wrong.append("%s: %s has no #%s" % (name, file, anchor))
    if wrong or checked < 1000:
        raise Failure("\n".join(wrong) or "only %d links were found" % checked)


def every_page_is_there_and_reachable(site):
    expected = {"docs/%s.html" % os.path.basename(path)[:-len(".md")]
                for path in glob.glob(os.path.join(ROOT, "docs", "*.md"))}
    reached = ["index.html"]
    for name in reached:  # the list grows meanwhile
        for file, _ in filter(None, (site.target(name, link) for link in site.pages[name].links)):
            if file in site.pages and file not in reached:
                reached.append(file)
    missing = (expected | set(site.pages)) - set(reached) - MADE_BY_MKDOCS
    if missing or len(expected) < 30:
        raise Failure("not reached from index.html: %s" % sorted(missing))


def code_blocks_and_tables_are_rendered(site):
    """Each page has as many as its source."""
    for name, page in site.pages.items():
        source = "README.md" if name == "index.html" else name[:-len(".html")] + ".md"
        if name in MADE_BY_MKDOCS:
            continue
        if not os.path.exists(os.path.join(ROOT, source)):
            source = os.path.join(os.path.dirname(name), "README.md")
        source = os.path.join(ROOT, source)
        blocks = sum(place == "begin" for _, _, place in markdown_text.lines_with_fences(source))
        tables = sum(bool(re.match(r"\|( ?:?-+:? ?\|)+$", line.strip()))
                     for _, line in markdown_text.plain_lines(source))
        if page.counts != {"pre": blocks, "table": tables}:
            raise Failure("%s: %s instead of %d pre, %d table" % (name, page.counts, blocks, tables))
        if not page.title or "{" in page.title:
            raise Failure("%s has the title %r" % (name, page.title))


def nothing_is_loaded_from_elsewhere(site):
    wrong = ["%s loads %s" % (name, load) for name, page in site.pages.items()
             for load in page.loads if re.match(r"([a-z]+:)?//", load)]
    sheets = glob.glob(os.path.join(site.directory, "**", "*.css"), recursive=True)
    for sheet in sheets:
        with open(sheet) as file:
            wrong += ["%s loads %s" % (sheet, load) for load in re.findall(
                r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]*)", file.read())]
    if wrong or not sheets:
        raise Failure("\n".join(wrong) or "there is no style sheet")


# Frames as wide as a phone show the pages. The browser prints this page with what it measured.
MEASURE = """<!DOCTYPE html><title>measure</title>%s<script>
onload = () => {
  const seen = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement;
    return {page: frame.title, title: page.title, width: frame.contentWindow.innerWidth,
            scrolls: Math.max(root.scrollWidth, page.body.scrollWidth),
            tables: page.querySelectorAll("table").length,
            loads: frame.contentWindow.performance.getEntriesByType("resource").map(e => e.name)};
  });
  document.body.textContent = "[MEASURED" + JSON.stringify(seen) + "MEASURED]";
};
</script>"""


def pages_fit_a_phone(site):
    """In headless Chromium: no page is wider than the screen, and none loads from elsewhere."""
    chromium = emulated.need("chromium")
    frame = '<iframe title="%s" src="%s" style="width:%dpx;height:844px;border:0"></iframe>'
    measure = os.path.join(site.directory, "measure.html")
    with open(measure, "w") as file:
        file.write(MEASURE % "".join(frame % (p, p, PHONE_WIDTH_PX) for p in PHONE_PAGES))
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", "--disable-extensions", "--disable-background-networking",
         "--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND",
         "--user-data-dir=" + os.path.join(site.top, "browser"), "--dump-dom", "file://" + measure],
        text=True, env=dict(os.environ, HOME=site.top), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S)
    found = re.search(r"\[MEASURED(.*)MEASURED\]", done.stdout, re.DOTALL)
    if not found:
        raise Failure("status %d\n%s\n%s" % (done.returncode, done.stdout[:2000], done.stderr[-4000:]))
    seen = json.loads(html.unescape(found.group(1)))
    wrong = [each for each in seen if each["width"] != PHONE_WIDTH_PX or not each["title"]
             or each["scrolls"] > PHONE_WIDTH_PX
             or any(not load.startswith("file://") for load in each["loads"])]
    if wrong or [each["page"] for each in seen] != list(PHONE_PAGES):
        raise Failure("\n".join(map(str, wrong or seen)))
    if sum(each["tables"] > 0 for each in seen) < 4:
        raise Failure("too few pages with tables: %s" % seen)


def a_directory_with_other_files_is_kept(site):
    kept = os.path.join(site.top, "kept")
    with open(kept, "w"):
        pass
    done = build(site.top)
    if done.returncode != 1 or "other files" not in done.stdout or not os.path.exists(kept):
        raise Failure(done.stdout)


def main():
    cases = (links_and_anchors_exist, every_page_is_there_and_reachable,
             code_blocks_and_tables_are_rendered, nothing_is_loaded_from_elsewhere,
             pages_fit_a_phone, a_directory_with_other_files_is_kept)

    def skipped():
        emulated.need("mkdocs")
    if shutil.which("mkdocs") is None:
        return emulated.run_cases("site", [("site", skipped)])
    with Site() as site:
        return emulated.run_cases("site", [(case.__name__, lambda case=case: case(site))
                                           for case in cases])


if __name__ == "__main__":
    sys.exit(main())
