//! A harness for libFuzzer, which `tests/fuzz/run` links with it: reads any bytes as a trace, and makes of it all that
//! the program can make. Nothing may panic; an error ends the trace, and names a byte of the file.

use std::io::sink;

use gosched_trace::{Item, Reader, perfetto, print, summary};

fn all_of(data: &[u8]) -> Result<(), gosched_trace::Error> {
    let mut reader = Reader::new(data)?;
    let mut text = print::Printer::new(sink(), print::Options { stacks: true, json: false });
    let mut json = print::Printer::new(sink(), print::Options { stacks: false, json: true });
    let mut converter = perfetto::Converter::new(sink(), "fuzz");
    let mut sums = summary::Sums::new(reader.version());
    let outcome = loop {
        let item = match reader.next() {
            Ok(Some(item)) => item,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let tables = reader.tables();
        match item {
            Item::Generation => {
                text.generation(tables).expect("nothing is written");
                json.generation(tables).expect("nothing is written");
                converter.generation(tables).expect("nothing is written");
                sums.generation(tables);
            }
            Item::Event(event) => {
                text.event(&event, tables).expect("nothing is written");
                json.event(&event, tables).expect("nothing is written");
                converter.event(&event, tables).expect("nothing is written");
                sums.event(&event, tables);
            }
        }
    };
    assert!(matches!(reader.next(), Ok(None)), "nothing comes behind the end");
    converter.finish().expect("nothing is written");
    let sums = sums.finish(reader.offset(), 20);
    sums.text(&mut sink()).expect("nothing is written");
    sums.json(&mut sink()).expect("nothing is written");
    outcome
}

/// Called by libFuzzer with each input.
///
/// # Safety
/// `data` points to `n` bytes, if n isn't 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's promise.
    let data = if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, n) } };
    if let Err(error) = all_of(data) {
        assert!(error.offset <= n as u64, "{error}");
    }
    0
}
