//! Every stored input passes, and every target has inputs.

use std::path::Path;

#[test]
fn inputs_that_were_kept_do_no_harm() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in bandana_fuzz::TARGETS {
        // Trivial inputs.
        for trivial in [&[][..], &[0], &[0xff; 64]] {
            target(trivial);
        }
        let mut inputs = 0;
        for input in std::fs::read_dir(corpus.join(name))? {
            let path = input?.path();
            // Printed so that a panic can be traced to the input.
            println!("{}", path.display());
            target(&std::fs::read(path)?);
            inputs += 1;
        }
        assert!(inputs > 0, "{name} has no inputs");
    }
    Ok(())
}

#[test]
fn every_target_has_a_program() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer/fuzz_targets");
    for (name, _) in bandana_fuzz::TARGETS {
        let program = std::fs::read_to_string(programs.join(format!("{name}.rs")));
        let call = format!("bandana_fuzz::{}(", name.replace('-', "_"));
        assert!(program.is_ok_and(|text| text.contains(&call)), "{name}");
    }
}
