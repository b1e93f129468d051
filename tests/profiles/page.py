#!/usr/bin/env python3
"""Makes docs/profiles.md out of page.md, the table of the profiles' keys
(emulator/verbs/profile_keys.inc) and the built-in profiles (emulator/verbs/profiles).

page.py                                  prints the page; in the top folder of the sources
page.py TEXT KEYS PAGE PROFILE...        fails when PAGE is not what would be printed
"""

import glob
import os
import re
import sys
import tomllib

KEY = re.compile(r'^KEY\((\w+), (\w+), .*, (kRequired|kOptional),\n    "((?:[^"\\]|\\.)*)"\)', re.MULTILINE)


def keys_in(table):
    """Returns (section, name, presence, meaning) of each key."""
    keys = [found[:3] + (found[3].replace('\\"', '"'),) for found in KEY.findall(table)]
    if len(keys) != len(re.findall(r"^KEY\(", table, re.MULTILINE)):
        raise ValueError("a key cannot be read")
    return keys


class Profile:
    """A profile's file: its values by (section, key), and the comment at each."""

    def __init__(self, text):
        parsed = tomllib.loads(text)
        self.name, self.base = parsed["name"], parsed.get("base")
        self.values = {}
        for key, value in parsed.items():
            for inner, of_it in value.items() if isinstance(value, dict) else [(None, value)]:
                self.values[(key, inner) if inner else ("top", key)] = of_it
        lines = text.splitlines()
        count = next(i for i, line in enumerate(lines) if not line.startswith("#"))
        self.about = " ".join(line[1:].strip() for line in lines[:count])
        self.comments, self.written, section = {}, {}, "top"
        for line in lines:
            if line.startswith("["):
                section = line[1:line.index("]")]
            found = re.match(r'(\w+) = ("[^"]*"|[^#]*?)\s*(?:# (.*))?$', line)
            if found:
                self.written[(section, found[1])] = found[2]
                self.comments[(section, found[1])] = found[3] or ""


def cell(text):
    return text.replace("|", "\\|")


def table_of_keys(keys, section):
    rows = ["| `%s`%s | %s |" % (name, " (optional)" if presence == "kOptional" else "", cell(meaning))
            for of, name, presence, meaning in keys if of == section and meaning]
    others = ["`%s`" % name for of, name, _, meaning in keys if of == section and not meaning]
    if others:
        rows.append("| %s | as the members of these names |" % ", ".join(others))
    return "\n".join(["| key | meaning |", "|---|---|"] + rows)


def values_of(profile, all_profiles, keys):
    """A profile with a base lists what differs. One without lists nothing: its file has every key."""
    link = "[%s.toml](../emulator/verbs/profiles/%s.toml)" % (profile.name, profile.name)
    if profile.base is None:
        return "### %s\n\n%s %s has every key." % (profile.name, profile.about, link)
    base, chain = all_profiles[profile.base], []
    while base:
        chain.append(base)
        base = all_profiles.get(base.base)
    rows = []
    for section, name, _, _ in keys:
        if (section, name) not in profile.values or name in ("name", "base"):
            continue
        before = next((one.written[(section, name)] for one in chain
                       if (section, name) in one.written), "")
        rows.append("| `%s` | %s | %s | %s |" % (
            name, profile.written[(section, name)], before,
            cell(profile.comments[(section, name)])))
    return "### %s\n\n%s All other keys are those of `%s`.\n\n%s" % (
        profile.name, profile.about, profile.base, "\n".join(
            ["| key | %s | %s | source |" % (profile.name, profile.base), "|---|---|---|---|"] + rows))


def page(text, table, files):
    keys = keys_in(table)
    profiles = {one.name: one for one in map(Profile, files)}
    known = {(section, name) for section, name, _, _ in keys} | {("top", "base")}
    for one in profiles.values():
        for key in one.values:
            if key not in known:
                raise ValueError("%s has the unknown key %s.%s" % ((one.name,) + key))
    for section in ("top", "device", "port", "rc", "cm", "habits"):
        text = text.replace("{keys %s}" % section, table_of_keys(keys, section))
    text = text.replace("{profiles}", "\n".join(
        "| [`%s`](#%s) | %s |" % (one.name, one.name.replace(".", ""), cell(one.about.split(". ")[0].rstrip(".")))
        for one in profiles.values()))
    return text.replace("{values}", "\n\n".join(
        values_of(one, profiles, keys) for one in profiles.values()))


def read(path):
    with open(path) as file:
        return file.read()


def main():
    if len(sys.argv) < 2:
        files = sorted(glob.glob("emulator/verbs/profiles/*.toml"))
        sys.stdout.write(page(read(os.path.join(os.path.dirname(__file__), "page.md")),
                              read("emulator/verbs/profile_keys.inc"), map(read, files)))
        return 0
    made = page(read(sys.argv[1]), read(sys.argv[2]), map(read, sorted(sys.argv[4:])))
    if read(sys.argv[3]) == made:
        return 0
    print("%s is stale; run: tests/profiles/page.py > docs/profiles.md" % sys.argv[3])
    return 1


if __name__ == "__main__":
    sys.exit(main())
