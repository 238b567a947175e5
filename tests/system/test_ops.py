"""Units, images, manifests and runbooks name only commands, options, files and variables that
exist.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cli.main import app
from config.site import read_site
from config.study import read_study
from tests.conftest import ROOT
from wire.passphrase import VARIABLE

OPS = ROOT / "ops"
UNITS = sorted((OPS / "systemd").glob("*.service"))
STATE, FILES = "/var/lib/sottovoce", "/etc/sottovoce"


def _check(words: list[str]) -> None:
    """That `sottovoce WORDS` would be understood: command, options, and no required one missing."""
    command: Any = typer.main.get_command(app)
    given = list(words)
    while hasattr(command, "commands") and given and not given[0].startswith("-"):
        assert given[0] in command.commands, words
        command = command.commands[given.pop(0)]
    known = {name: p for p in command.params for name in (*p.opts, *p.secondary_opts)}
    seen, at = set(), 0
    while at < len(given):
        name, equals, _ = given[at].partition("=")
        if name.startswith("--") and name != "--help":
            assert name in known, f"{' '.join(words)}: no option {name}"
            seen.add(known[name].name)
            at += 0 if equals or known[name].is_flag else 1
        at += 1
    if "--help" not in given and not hasattr(command, "commands"):
        missing = [
            p.name
            for p in command.params
            if p.required and p.opts[0].startswith("-") and p.name not in seen
        ]
        assert not missing, f"{' '.join(words)}: without {missing}"


def _paths(words: list[str]) -> list[str]:
    return [w.rpartition("=")[2] for w in words if w.rpartition("=")[2].startswith("/")]


def _unit(path: Path) -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            table.setdefault(key, []).append(value)
    return table


@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.stem)
def test_units(path: Path) -> None:
    unit = _unit(path)
    program, *words = shlex.split(unit["ExecStart"][0])
    assert program == "/opt/sottovoce/bin/sottovoce"
    _check(words)
    assert unit["StateDirectory"] == ["sottovoce"] and unit["WorkingDirectory"] == [STATE]
    assert (
        unit["ProtectSystem"] == ["strict"]
        and unit["NoNewPrivileges"] == ["yes"]
        and unit["User"] == ["sottovoce"]
    )
    for place in _paths(words):
        assert place.startswith((f"{STATE}/", f"{FILES}/")), place
    text = path.read_text()
    assert f"{VARIABLE}=%d/passphrase" in text and "LoadCredential=passphrase:" in text
    assert unit["RestartPreventExitStatus"] == ["2"]  # cli.main: a user's mistake


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.stem)
def test_systemd_understands_the_units(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name  # the program is not installed here, and verify looks for it
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", path.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60
    )
    about = [line for line in done.stderr.splitlines() if path.name in line]
    assert not about, done.stderr


def test_examples_are_files_that_the_programs_take() -> None:
    study = read_study(OPS / "examples" / "study.toml")
    site = read_site(OPS / "examples" / "silo.toml")
    assert study.with_silos(3).method in site.limits.methods
    assert site.study is None and str(site.home) == f"{STATE}/silo"
    commented = (OPS / "examples" / "silo.toml").read_text()
    # what is commented out is understood too
    loose = re.sub(r"(?m)^# (\w+ = |\[)", r"\1", commented)
    assert loose != commented
    table = tomllib.loads(loose)
    assert set(table) <= set(vars(site)) and set(table["limits"]) <= set(vars(site.limits))
    assert set(table["accept"]) == set(vars(site.accept))


def _hardened(container: dict[str, Any], pod: dict[str, Any]) -> None:
    own = container["securityContext"]
    assert own["readOnlyRootFilesystem"] is True and own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert (
        pod["securityContext"]["runAsNonRoot"] is True
        and pod["securityContext"]["runAsUser"] == 10001
    )
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("role", ["silo", "coordinator"])
def test_manifests(role: str) -> None:
    parts = list(yaml.safe_load_all((OPS / "kubernetes" / f"{role}.yaml").read_text()))
    kinds = {p["kind"]: p for p in parts}
    assert len(kinds) == len(parts) and all(
        p["apiVersion"] and p["metadata"]["name"] for p in parts
    )
    job = kinds["Deployment"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:2] == [role, "serve"] and container["name"] == role
    _check([str(w) for w in container["args"]])
    _hardened(container, pod)
    mounts = {m["mountPath"] for m in container["volumeMounts"]}
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    for place in _paths(container["args"]):
        assert any(place.startswith(f"{mount}/") for mount in mounts), place
    claims = [
        v["persistentVolumeClaim"]["claimName"]
        for v in pod["volumes"]
        if "persistentVolumeClaim" in v
    ]
    assert kinds["PersistentVolumeClaim"]["metadata"]["name"] in claims
    # one process has a party's folder, also while a new version takes over
    assert job["replicas"] == 1 and job["strategy"] == {"type": "Recreate"}
    assert job["selector"]["matchLabels"] == job["template"]["metadata"]["labels"]
    assert pod.get("restartPolicy", "Always") == "Always"
    if role == "silo":
        policy = kinds["NetworkPolicy"]["spec"]
        assert (
            policy["ingress"] == []
            and policy["podSelector"]["matchLabels"] == job["template"]["metadata"]["labels"]
        )
    else:
        service = kinds["Service"]["spec"]
        assert service["selector"] == job["template"]["metadata"]["labels"]
        named = [p["name"] for p in container["ports"]]
        assert [p["targetPort"] for p in service["ports"]] == named == ["board", "study"]
        numbers = [p["containerPort"] for p in container["ports"]]
        assert numbers[1] == numbers[0] + 1  # coordinator.serving
        assert f":{container['ports'][0]['containerPort']}" in " ".join(container["args"])


def test_compose() -> None:
    table = yaml.safe_load((OPS / "container" / "compose.yaml").read_text())
    for role, service in table["services"].items():
        assert service["profiles"] == [role] and service["command"][:2] == [role, "serve"]
        _check([str(w) for w in service["command"]])
        assert (
            service["read_only"] is True
            and service["cap_drop"] == ["ALL"]
            and service["user"] == "10001:10001"
        )
        assert service["security_opt"] == ["no-new-privileges:true"]
        inside = [v.split(":")[1] for v in service["volumes"]]
        for place in _paths(service["command"]):
            assert any(place.startswith(f"{mount}/") for mount in inside), place
        assert (OPS / "container" / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_the_image_has_every_package_and_runs_without_root() -> None:
    text = (OPS / "container" / "Containerfile").read_text()
    steps = [
        line.split(maxsplit=1)
        for line in text.replace("\\\n", " ").splitlines()
        if line and line[0] not in "# "
    ]
    assert {s[0] for s in steps} <= {
        "FROM",
        "RUN",
        "COPY",
        "WORKDIR",
        "ENV",
        "USER",
        "VOLUME",
        "ENTRYPOINT",
        "CMD",
    }
    copied = {
        w for op, rest in steps if op == "COPY" and "--from" not in rest for w in rest.split()[:-1]
    }
    for name in copied:
        assert (ROOT / name).exists(), name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {w.rstrip("*") for w in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert (
        packages <= copied
        and {project["project"]["readme"], *project["project"]["license-files"]} <= copied
    )
    users = [rest for op, rest in steps if op == "USER"]
    assert users == ["10001:10001"]
    entry = next(rest for op, rest in steps if op == "ENTRYPOINT")
    assert (
        yaml.safe_load(entry) == ["/opt/sottovoce/bin/sottovoce"]
        and "sottovoce" in project["project"]["scripts"]
    )
    # no registry's host
    assert all("/" not in rest.split()[0] for op, rest in steps if op == "FROM")


@pytest.mark.parametrize(
    "page",
    [
        "docs/operations.md",
        *(f"docs/operations/{role}.md" for role in ("coordinator", "silo", "officer")),
        "docs/quickstart.md",
        "README.md",
    ],
)
def test_the_runbooks_commands_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    blocks = [block for language, block in fenced if not language]
    found = 0
    for line in "\n".join(blocks).splitlines():
        words = shlex.split(line.partition("  #")[0].replace("…", ""), comments=True)
        for at, word in enumerate(words):
            if (
                word in ("sottovoce", ".venv/bin/sottovoce", "/opt/sottovoce/bin/sottovoce")
                and len(words) > at + 1
            ):
                if at and words[at - 1] in ("-t", "-u"):  # an image's or a user's name
                    continue
                _check([w for w in words[at + 1 :] if w not in ("|",)])
                found += 1
                break
    assert found > {"docs/operations.md": 15, "docs/operations/officer.md": 1}.get(page, 2)
    for named in re.findall(r"(?:^|[\s(`])((?:ops|docs)/[\w./-]*\w)", text):
        assert (ROOT / named).exists(), named


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here")
def test_the_alerts_ring_when_they_should() -> None:
    """alerts.test.yml plays figures over hours; Prometheus's own tool says what rings."""
    folder = OPS / "prometheus"
    for words in (
        ("check", "rules", "alerts.yml"),
        ("check", "config", "--syntax-only", "scrape.yml"),
        ("test", "rules", "alerts.test.yml"),
    ):
        done = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
