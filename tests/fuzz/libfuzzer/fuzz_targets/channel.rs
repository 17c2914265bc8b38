#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bandana_fuzz::channel(data));
