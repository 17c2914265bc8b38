# The loop of whoever changes Bandana; `just` lists it.

_list:
    @just --list --unsorted

# Format, lints and unit tests: under a minute once everything is built.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
    cargo test --workspace --lib --locked --quiet

# One program of end-to-end tests, such as `just test stores`, or some of its tests.
test NAME *FILTER:
    cargo test --workspace --test {{ NAME }} --locked -- {{ FILTER }}

# Writes what is generated and committed.
regenerate:
    cargo run --locked -p bandana-tests regenerate

# Everything that decides whether a change may land.
ci:
    .ci/run
