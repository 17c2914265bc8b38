#![no_main]

// A caught panic is no crash, but the fuzzer's panic hook would end the process first.
libfuzzer_sys::fuzz_target!(
    init: drop(std::panic::take_hook()),
    |data: &[u8]| bandana_fuzz::parquet(data)
);
