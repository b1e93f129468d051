"""Prepares README.md and the pages that it links to, directly or not, for MkDocs.

usage: stage.py ROOT STAGE   ROOT is the source tree. STAGE is an empty directory, and gets
                             mkdocs.json and pages/, a copy in which MkDocs sees the anchors and code
                             blocks that GitHub and GitLab see.
"""

import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import markdown_text  # noqa: E402

HOME, INDEX = "README.md", "docs/index.md"


def targets(root, page):
    """Returns the files that a page links to, in order, as paths below the root."""
    found = []
    for number, link in markdown_text.links_of(os.path.join(root, page)):
        path = link.partition("#")[0]
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.isfile(os.path.join(root, target)):
            sys.exit("error: %s:%d links to %s, which is no file" % (page, number, link))
        found.append(target)
    return found


def reachable(root):
    found = [HOME]
    for page in found:  # the list grows meanwhile
        if page.endswith(".md"):
            found += [each for each in dict.fromkeys(targets(root, page)) if each not in found]
    return found


def converted(path):
    """Returns a page's text in the dialect of Python-Markdown."""
    lines, anchors, indent = [], markdown_text.headings(path), None
    for number, line, place in markdown_text.lines_with_fences(path):
        if place == "begin":
            begin = len(line) - len(line.lstrip())
            # Python-Markdown knows fences only at the margin. Inside a list, indentation marks code.
            indent = begin + 4 if begin else None
            info = markdown_text.FENCE.match(line).group(2)
            named = re.search(r'file="([^"]+)"', info)
            if named:
                lines += ["*%s*" % named.group(1).replace("_", r"\_"), ""]
            lines.append("" if indent else "```" + info.partition(" ")[0])
        elif place == "end":
            lines.append("" if indent else "```")
        elif place == "inside":
            lines.append(" " * indent + line if indent else line)
        elif number in anchors and not line.startswith("# "):  # MkDocs takes the title as it is
            lines.append("%s {#%s}" % (line, anchors[number]))
        else:  # a list in a list has 2 spaces at GitHub, and 4 spaces at Python-Markdown
            lines.append(" " * (len(line) - len(line.lstrip())) + line)
    return "\n".join(lines) + "\n"


def navigation(root):
    """Returns the groups of docs/index.md with their pages."""
    groups, path = [{"Start": [HOME, INDEX]}], os.path.join(root, INDEX)
    for _, line in markdown_text.plain_lines(path):
        if line.startswith("## "):
            groups.append({line[3:].strip(): []})
        for link in markdown_text.LINK.findall(line):
            page = os.path.normpath(os.path.join(os.path.dirname(INDEX), link.partition("#")[0]))
            if page.endswith(".md") and not any(page in each for group in groups
                                                for each in group.values()):
                next(iter(groups[-1].values())).append(page)
    return [group for group in groups if all(group.values())]


def main():
    root, stage = sys.argv[1:]
    for name in reachable(root):
        source, target = os.path.join(root, name), os.path.join(stage, "pages", name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if name.endswith(".md"):
            with open(target, "w") as file:
                file.write(converted(source))
        else:
            shutil.copyfile(source, target)
    own = os.path.dirname(os.path.abspath(__file__))
    shutil.copyfile(os.path.join(own, "site.css"), os.path.join(stage, "pages", "site.css"))
    with open(os.path.join(stage, "mkdocs.json"), "w") as file:  # JSON is YAML
        json.dump({"INHERIT": os.path.join(own, "mkdocs.yml"),
                   "docs_dir": os.path.join(stage, "pages"), "nav": navigation(root)}, file)


if __name__ == "__main__":
    main()
