"""The files for CI systems: their form, and the shell commands in them. The systems themselves are
not here."""

import os
import re
import shutil
import subprocess

import emulated
from emulated import Failure

# Keys whose values are shell commands: GitHub, GitLab.
SHELL_KEYS = ("run", "script", "commands")
SHELLS = ("sh", "bash")


def commands_of(value):
    """Yields the shell commands in a parsed YAML file."""
    if isinstance(value, list):
        for each in value:
            yield from commands_of(each)
    for key, each in value.items() if isinstance(value, dict) else ():
        if key in SHELL_KEYS and isinstance(each, str):
            yield each
        elif key in SHELL_KEYS and isinstance(each, list):
            yield "\n".join(each)
        elif key == "command" and isinstance(each, str):  # Compose
            yield each
        elif key == "command" and each[0] in SHELLS:  # Kubernetes
            yield each[2]
        else:
            yield from commands_of(each)


def check_shell(root, name, text):
    """Fails unless bash parses the text, and shellcheck, if it is installed, finds nothing."""
    checks = [["bash", "-n"]]
    if shutil.which("shellcheck"):
        checks.append(["shellcheck", "--shell=bash", "--external-sources", "-"])
    for check in checks:
        done = subprocess.run(check, input=text + "\n", cwd=root, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        if done.returncode != 0:
            raise Failure("%s: %s\n%s\n%s" % (name, " ".join(check), text, done.stdout))


def commands_in(path, text):
    """Returns the shell commands in a file of a CI system."""
    name = os.path.basename(path)
    if name.endswith((".yml", ".yaml")):
        import yaml
        return [each for document in yaml.safe_load_all(text) for each in commands_of(document)]
    if name == "Jenkinsfile":
        return re.findall(r"sh '''(.*?)'''", text, re.DOTALL)
    if name == "Containerfile":
        return ["\n".join(re.findall(r"^RUN (.*)$", text, re.MULTILINE))]
    return [text]


def check(root, page_blocks):
    """Checks the files, and the YAML blocks of the page docs/ci.md. A Jenkinsfile is Groovy, of which
    only the shell commands are checked."""
    directory = os.path.join(root, "docs", "examples", "ci")
    paths = [os.path.join(root, "action.yml"), os.path.join(root, "tools", "action")]
    paths += [os.path.join(directory, name) for name in sorted(os.listdir(directory))
              if name != "BUILD"]
    texts = [("docs/ci.md:%d.yml" % block.line, block.text) for block in page_blocks
             if block.language == "yaml"]
    for path in paths:
        with open(path) as file:
            texts.append((path, file.read()))
    try:
        import yaml
    except ImportError:
        raise emulated.Skip("Python has no yaml")
    for path, text in texts:
        try:
            commands = commands_in(path, text)
        except yaml.YAMLError as error:
            raise Failure("%s: %s" % (path, error))
        if not commands:
            raise Failure(path + " has no commands")
        for each in commands:
            check_shell(root, path, each)


def run_action(root, installed, network):
    """Runs the steps of action.yml: a test that a scenario makes fail, and one that succeeds."""
    for program in ("rdma_server", "rdma_client"):
        emulated.need(program)
    own = os.path.join(installed.root, "action")
    os.mkdir(own)
    path, scenario = os.path.join(own, "path"), os.path.join(own, "rules.toml")
    with open(scenario, "w") as file:
        file.write('[[fault]]\nat = "cm.req"\nhost = "a"\nreject = 28\n')
    pair = ('rdmaemu run --host a --address 127.0.1.1 ${SCENARIO:+--scenario "$SCENARIO"} -- '
            "rdma_server & rdmaemu wait --host a --listening 7471\n"
            "rdmaemu run --host b --address 127.0.1.2 -- rdma_client -s 127.0.1.1")

    def step(name, **inputs):
        environment = dict(installed.environment, GITHUB_PATH=path, TMPDIR=own,
                           GITHUB_ENV=os.path.join(own, "env"), **inputs)
        done = subprocess.run([*network, os.path.join(root, "tools", "action"), name],
                              env=environment, cwd=own, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
        return done.returncode, done.stdout

    for prefix, expected in ((installed.prefix, 0), (own, 1)):
        status, said = step("install", PREFIX=prefix)
        if status != expected:
            raise Failure("install of %s: status %d\n%s" % (prefix, status, said))
    with open(path) as file:
        if file.read() != installed.prefix + "/bin\n":
            raise Failure("GITHUB_PATH is wrong")
    for report, rules, expected in (("good", "", 0), ("bad", scenario, 255)):
        status, said = step("run", COMMANDS=pair, SCENARIO=rules, OPTIONS="--sysfs off",
                            REPORT=report)
        kept = sorted(os.listdir(os.path.join(own, report)))
        if status != expected or kept != ["commands.sh", "default.jsonl", "output.txt"]:
            raise Failure("%s: status %d, files %s\n%s" % (report, status, kept, said))
