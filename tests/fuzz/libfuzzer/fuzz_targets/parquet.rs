#![no_main]

// A panic that is caught is no crash; the fuzzer's hook would end the process before.
libfuzzer_sys::fuzz_target!(
    init: drop(std::panic::take_hook()),
    |data: &[u8]| bandana_fuzz::parquet(data)
);
