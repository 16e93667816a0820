//! A line of JSON in memory.

use crate::os::heap;
use crate::sched::inspect::json::write_escaped;
use core::fmt::{self, Display, Write};

/// The line under construction. Without memory it stays incomplete.
#[derive(Default)]
pub struct Json {
    text: Vec<u8>,
    lacks_memory: bool,
    /// Whether the next member or element needs a comma before it.
    needs_comma: bool,
}

impl Json {
    /// Ends the line. `None`: there was no memory.
    pub fn end(mut self) -> Option<Vec<u8>> {
        self.raw("\n");
        (!self.lacks_memory).then_some(self.text)
    }

    fn raw(&mut self, s: &str) {
        if heap::reserve(&mut self.text, s.len()) {
            self.text.extend_from_slice(s.as_bytes());
        } else {
            self.lacks_memory = true;
        }
    }

    fn comma(&mut self) {
        if self.needs_comma {
            self.raw(",");
        }
        self.needs_comma = true;
    }

    fn name(&mut self, name: &str) {
        self.comma();
        self.string(name.as_bytes());
        self.raw(":");
    }

    /// What stands between `open` and `close`, which `f` adds.
    fn within(&mut self, open: &str, close: &str, f: impl FnOnce(&mut Json)) {
        self.raw(open);
        self.needs_comma = false;
        f(self);
        self.raw(close);
        self.needs_comma = true;
    }

    /// An object: the line itself, or an element of a list.
    pub fn object(&mut self, f: impl FnOnce(&mut Json)) {
        self.comma();
        self.within("{", "}", f);
    }

    pub fn member_object(&mut self, name: &str, f: impl FnOnce(&mut Json)) {
        self.name(name);
        self.within("{", "}", f);
    }

    pub fn member_list(&mut self, name: &str, f: impl FnOnce(&mut Json)) {
        self.name(name);
        self.within("[", "]", f);
    }

    /// A number, `true`, `false` or `null`.
    pub fn member(&mut self, name: &str, value: impl Display) {
        self.name(name);
        self.plain(value);
    }

    /// As [`Json::member`], in a list.
    pub fn element(&mut self, value: impl Display) {
        self.comma();
        self.plain(value);
    }

    pub fn member_string(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        self.string(value);
    }

    fn plain(&mut self, value: impl Display) {
        let _ = write!(Raw(self), "{value}");
    }

    fn string(&mut self, bytes: &[u8]) {
        self.raw("\"");
        for part in bytes.utf8_chunks() {
            let _ = write_escaped(&mut Raw(self), part.valid());
            if !part.invalid().is_empty() {
                self.raw("\u{fffd}");
            }
        }
        self.raw("\"");
    }
}

/// Adds text as it is.
struct Raw<'a>(&'a mut Json);

impl Write for Raw<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0.raw(s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_elements_have_commas_between_them_and_strings_are_escaped() {
        let mut json = Json::default();
        json.object(|o| {
            o.member("a", 1);
            o.member_list("b", |l| {
                l.element(2);
                l.object(|_| {});
                l.element("null");
            });
            o.member_object("c", |_| {});
            o.member_string("d\"", b"x\\\n\xff");
        });
        let text = json.end().unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(
            text,
            "{\"a\":1,\"b\":[2,{},null],\"c\":{},\"d\\\"\":\"x\\\\\\u000a\u{fffd}\"}\n"
        );
    }
}
