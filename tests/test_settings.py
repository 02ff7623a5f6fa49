import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcl.errors import BadInput
from tcl.settings import load_settings


def test_load_settings_returns_defaults_and_paths_when_folder_is_empty(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environ={})
    assert settings.measure.fraction == 0.1
    assert settings.tuning.trials == 256
    assert not settings.dvc.git_commit
    assert settings.data_dir == tmp_path / "data"
    assert settings.prefect_home == tmp_path / ".tcl" / "prefect"
    assert settings.mlflow_tracking_uri == f"sqlite:///{tmp_path}/mlflow.db"


def test_load_settings_lets_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    (tmp_path / "tcl.toml").write_text("[measure]\nrepeats = 2\nfraction = 0.2\npool_size = 20\n")
    environ = {"TCL_ROOT": str(tmp_path), "TCL_MEASURE_FRACTION": "0.3", "TCL_MEASURE_POOL_SIZE": "30"}
    settings = load_settings(overrides={"measure.pool_size": 40, "measure.seed": None}, environ=environ)
    assert (settings.root, settings.measure.repeats) == (tmp_path, 2)
    assert (settings.measure.fraction, settings.measure.pool_size) == (0.3, 40)


def test_load_settings_reads_each_type_from_the_environment(tmp_path: Path) -> None:
    environ = {
        "TCL_DVC_GIT_COMMIT": "true",
        "TCL_MLFLOW_TRACKING_URI": "http://localhost:5000",
        "TCL_MEASURE_RUN_TIMEOUT": "3",
        "TCL_LIBRARY": "/usr/share/tcl8.6",
    }
    settings = load_settings(tmp_path, environ=environ)
    assert settings.dvc.git_commit is True
    assert settings.mlflow_tracking_uri == "http://localhost:5000"
    assert settings.measure.run_timeout == 3.0


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[measure]\nrepeat = 3\n", ["tcl.toml", "'repeat'", "[measure]", "repeats"]),
        ("[measuring]\nrepeats = 3\n", ["tcl.toml", "[measuring]", "measure"]),
        ("repeats = 3\n", ["tcl.toml", "[repeats]"]),
        ("[measure]\nrepeats = 2.5\n", ["tcl.toml", "measure.repeats", "a whole number", "2.5"]),
        ("[measure]\nrepeats = true\n", ["measure.repeats", "a whole number", "True"]),
        ("[measure]\nrepeats = 0\n", ["measure.repeats", "from 1 to 1000000000"]),
        ("[measure]\nfraction = 1.5\n", ["measure.fraction", "from 0.0001 to 1"]),
        ("[measure]\nfraction = nan\n", ["measure.fraction", "nan"]),
        (f"[measure]\nfraction = {'9' * 400}\n", ["measure.fraction", "from 0.0001 to 1", "999..."]),
        (f"[serve]\nreconcile_seconds = {'9' * 400}\n", ["serve.reconcile_seconds", "from 1 to 1000000"]),
        (f"[learning]\nseed = 0x{'f' * 5000}\n", ["learning.seed", "thousands of digits"]),
        ("[measure]\nbuild_timeout = inf\n", ["measure.build_timeout", "from 0 to 1000000", "inf"]),
        (
            '[mlflow]\ntracking_uri = "postgresql://me:secret@db/x"\n',
            ["http://", "'postgresql'", "MLflow server"],
        ),
        ('[mlflow]\ntracking_uri = "mlruns"\n', ["mlflow.tracking_uri", "sqlite://", "'mlruns'"]),
        ("[dvc]\nremote = 3\n", ["dvc.remote", "a text"]),
        ("[measure\n", ["tcl.toml", "TOML", "line 1"]),
    ],
)
def test_load_settings_names_file_key_and_allowed_when_file_is_wrong(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    (tmp_path / "tcl.toml").write_text(text)
    with pytest.raises(BadInput) as error:
        load_settings(tmp_path, environ={})
    assert [part for part in parts if part not in str(error.value)] == []
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TCL_MEASURE_BUILD_TIMEOUT", "inf"),
        ("TCL_MEASURE_REPEAT", "3"),
        ("TCL_MEASURE_REPEATS", "three"),
        ("TCL_DVC_GIT_COMMIT", "perhaps"),
    ],
)
def test_load_settings_names_variable_when_it_is_wrong(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(BadInput, match=variable):
        load_settings(tmp_path, environ={variable: value})


def test_load_settings_refuses_when_project_folder_is_absent(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        load_settings(tmp_path / "absent", environ={})


@given(
    text=st.text(), section=st.sampled_from(["measure", "learning", "nosuch", ""]), key=st.text(max_size=10)
)
def test_load_settings_either_loads_or_raises_bad_input(
    tmp_path_factory: pytest.TempPathFactory, text: str, section: str, key: str
) -> None:
    folder = tmp_path_factory.getbasetemp()
    with contextlib.suppress(BadInput):
        load_settings(folder, overrides={f"{section}.{key}": text}, environ={"TCL_MEASURE_REPEATS": text})
