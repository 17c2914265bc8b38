//! Private queries, as the program is run by hand and by scripts.

use std::process::Command;

use anyhow::Context as _;
use bandana_examples::environment::CleanEnvironment as _;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_private-queries");

#[test]
fn few_people_get_a_picture_and_a_sentence() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for people in ["1", "2", "50"] {
        let (plot, json) = (folder.path().join("plot.svg"), folder.path().join("result.json"));
        let mut command = Command::new(PROGRAM);
        command.args(["--people", people, "--queries", "300", "--sessions", "1"]);
        command.arg("--plot").arg(&plot).arg("--json").arg(&json).clean_environment();
        let output = command.output()?;
        let said = String::from_utf8(output.stdout)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{people} people: {said} {errors}");
        let sentence = format!("Noise hides one person, among {people} as among millions");
        assert!(said.contains(&sentence), "{said}");
        let picture = std::fs::read_to_string(&plot)?;
        for name in ["multiplicative weights", "Laplace", "Gaussian, delta"] {
            assert!(picture.contains(name), "{people} people: no {name}");
        }
        let result: Value = serde_json::from_slice(&std::fs::read(&json)?)?;
        let contestants = result["contest"]["contestants"].as_array().context("no contestants")?;
        assert_eq!(contestants[1]["answered"], 300, "{result}");
    }
    Ok(())
}

#[test]
fn a_picture_of_an_unknown_kind_is_refused_before_anything_is_run() -> anyhow::Result<()> {
    let output = Command::new(PROGRAM).args(["--plot", "a.pdf"]).clean_environment().output()?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{errors}");
    assert!(errors.contains("ends in .svg or .png"), "{errors}");
    Ok(())
}
