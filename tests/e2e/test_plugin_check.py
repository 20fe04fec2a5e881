"""`flambeau plugin check` and `seal`: what they find, in text and JSON, and that no plug-in ends the tool."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import torch

import flambeau
import plugins

pytestmark = [pytest.mark.plain_only("runs commands in processes of their own"), pytest.mark.slow]


def run(*args, status):
    """What `flambeau plugin ARGS` printed."""
    command = [sys.executable, "-m", "flambeau", "plugin", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def checked(file, *args, status=1):
    """Its report."""
    return json.loads(run("check", file, "--json", *args, status=status))


@pytest.mark.parametrize("name", ["cpu", "template"])
def test_those_of_this_repository_pass(name):
    folder = plugins.PACKAGED if name == "cpu" else plugins.built("template")
    report = checked(plugins.half(folder, name, "launch"), status=0)
    assert report["ok"] and report["plugin"]["name"] == name
    assert report["passed"] > 1300 and report["failed"] == 0
    # Each form ran for some type, or is listed with the reason why not.
    assert len(report["forms"]) > 80
    assert all(form["passed"] or form["refusals"] for form in report["forms"].values())
    assert {"cast from bf16", "load", "store", "load if", "reduce Max", "stages", "threads"} <= {*report["forms"]}
    if name == "template":
        assert report["refused"] == 0


def test_memory_that_is_the_back_ends_own(tmp_path):
    plugins.install(tmp_path, "template", "template")
    plugins.install(tmp_path, "elsewhere", "elsewhere")
    report = checked(plugins.half(tmp_path, "elsewhere", "launch"), "--only", "r", status=0)
    assert report["plugin"]["name"] == "elsewhere" and report["passed"] > 500 and report["failed"] == 0


def test_text_names_what_is_refused():
    text = run("check", plugins.half(plugins.PACKAGED, "cpu", "compile"), "--only", "unary S", status=0)
    assert re.search(r"^unary Sqrt +2 passed$", text, re.MULTILINE)
    assert re.search(r"^unary Sinh +2 refused\n    refused: the back end has no Sinh of f32$", text, re.MULTILINE)
    assert text.splitlines()[-1] == "12 passed, 0 failed, 3 refused"


def test_wrong_results_fail_in_every_form(tmp_path):
    plugins.install(tmp_path, "idle", "faulty")
    report = checked(plugins.half(tmp_path, "idle", "compile"))
    del report["forms"]["contract"]
    assert [name for name, form in report["forms"].items() if not form["failed"]] == []
    assert report["forms"]["unary Exp"]["failures"][0].startswith("f32: ")
    # A kernel without elements is done when nothing is done.
    assert report["passed"] < 150


def test_statuses_of_launches_are_explained(tmp_path):
    plugins.install(tmp_path, "status", "faulty")
    report = checked(plugins.half(tmp_path, "status", "compile"), "--only", "unary Exp, f32")
    assert report["forms"]["unary Exp"]["failures"] == ["f32: the launch failed: the device said 7"]


ENDS = {
    "abort": "f32: the plug-in ended the process by signal SIGABRT at this kernel",
    "hang": "f32: the plug-in gave no answer in 1 s at this kernel, and was stopped",
    "panic": "f32: its capabilities list all of this kernel, but it was not compiled: the plug-in panicked: as asked",
    "launched": "f32: the launch failed: the plug-in panicked during a launch",
}


@pytest.mark.parametrize("fault", ENDS)
def test_failures_are_told_and_the_next_kernel_is_checked(tmp_path, fault):
    plugins.install(tmp_path, fault, "faulty")
    report = checked(plugins.half(tmp_path, fault, "compile"), "--only", "unary Exp,", "--timeout", 1)
    failures = report["forms"]["unary Exp"]["failures"]
    assert [f.split("; the last")[0] for f in failures] == [ENDS[fault], ENDS[fault].replace("f32", "f64")]
    assert not report["ok"]


def test_hanging_while_it_is_opened(tmp_path):
    plugins.install(tmp_path, "hang_at_once", "faulty")
    report = checked(plugins.half(tmp_path, "hang_at_once", "compile"), "--timeout", 2)
    assert report["unusable"] == "the plug-in gave no answer in 2 s while it was opened, and was stopped"


def test_what_cannot_be_opened_is_one_sentence(tmp_path):
    file = plugins.half(tmp_path, "cpu", "launch")
    assert "does not exist" in run("check", file, status=1)
    plugins.install(tmp_path, "cpu", "cpu")
    plugins.spoil(file, "bit flipped")
    report = checked(file)
    assert report["unusable"].startswith(f"plug-in {file} is damaged") and not report["ok"]
    assert "is not named as plug-ins are" in run("check", tmp_path / "cpu.so", status=1)


def test_seal(tmp_path):
    plugins.install(tmp_path, "template", "template")
    file = plugins.half(tmp_path, "template", "launch")
    whole = file.read_bytes()
    run("seal", file, status=0)
    assert file.read_bytes()[: len(whole)] == whole and len(file.read_bytes()) == len(whole) + 40
    plugins.flipped(data := bytearray(file.read_bytes()))
    file.write_bytes(data)
    assert "is damaged" in checked(file)["unusable"]


def test_the_template_runs_programs(tmp_path):
    plugins.install(tmp_path, "template", "template")
    x = torch.randn(5, 7)

    def f(x):
        return torch.softmax(x * 2, -1) + x.t().sum(0, keepdim=True).t()

    with flambeau.config.patch(plugin_path=[str(tmp_path)]):
        torch.testing.assert_close(flambeau.compile(f, backend="template")(x), f(x))
        counts = flambeau.counters()
        assert counts["graphs"] == 1 and not counts["eager_fallbacks"] and not counts["eager_graph_reasons"], counts


def test_a_back_end_made_of_the_template(tmp_path):
    """As cargo-generate makes it: a file that ends in .liquid takes the place of the one without, and placeholders are
    filled in where `include` has its new name."""
    template, made = plugins.ROOT / "plugins/template", tmp_path / "my-chip"
    shutil.copytree(template, made)
    for file in made.rglob("*.liquid"):
        file.replace(file.with_suffix(""))
    settings = tomllib.loads((template / "cargo-generate.toml").read_text())
    for file in (file for pattern in settings["template"]["include"] for file in made.glob(pattern)):
        text = file.read_text().replace("{{project-name}}", "my-chip").replace("{{flambeau}}", str(plugins.ROOT))
        file.write_text(text)
    # The versions and profile of this repository, whose target folder has all that is needed already.
    shutil.copy(plugins.ROOT / "Cargo.lock", made)
    release = {"OPT_LEVEL": "2", "DEBUG": "line-tables-only", "CODEGEN_UNITS": "16", "INCREMENTAL": "true"}
    profile = {f"CARGO_PROFILE_RELEASE_{key}": value for key, value in release.items()}
    env = {**os.environ, **profile, "CARGO_TARGET_DIR": str(plugins.ROOT / "target")}
    subprocess.run(["cargo", "build", "--release", "--quiet", "--offline"], cwd=made, env=env, check=True, timeout=280)
    for half in plugins.HALVES:
        shutil.move(plugins.half(plugins.ROOT / "target/release", "my_chip", half), tmp_path)
    report = checked(plugins.half(tmp_path, "my_chip", "compile"), "--only", "co", status=0)
    assert report["plugin"]["name"] == "my_chip" and {"contract", "const"} <= {*report["forms"]}


def test_the_template_is_short_and_its_manifests_are_the_rendered_ones():
    template = plugins.ROOT / "plugins/template"
    assert sum(len(file.read_text().splitlines()) for file in template.rglob("*.rs")) < 200
    for half in plugins.HALVES:
        rendered = (template / half / "Cargo.toml.liquid").read_text().replace("{{project-name}}", "template")
        described = rendered.replace("The back end template", "The template back end")
        assert described == (template / half / "Cargo.toml").read_text()
