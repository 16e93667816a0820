//! Writes protobuf.
//!
//! By hand: a converter writes ten kinds of messages and reads none. A message is some calls of the functions below; a
//! crate such as prost would add eight crates for them, and would copy each packet twice.

/// A message that is being written.
#[derive(Default)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn key(&mut self, field: u32, wire: u64) {
        self.varint(u64::from(field) << 3 | wire);
    }

    /// A field of the types uint32, uint64, int32, int64, bool or an enum. Negative numbers are in two's complement.
    pub fn number(&mut self, field: u32, value: u64) -> &mut Message {
        self.key(field, 0);
        self.varint(value);
        self
    }

    /// A field of the type fixed64.
    pub fn fixed64(&mut self, field: u32, value: u64) -> &mut Message {
        self.key(field, 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A field of the type double.
    pub fn double(&mut self, field: u32, value: f64) -> &mut Message {
        self.fixed64(field, value.to_bits())
    }

    /// A field of the type string.
    pub fn string(&mut self, field: u32, value: &str) -> &mut Message {
        self.data(field, value.as_bytes())
    }

    /// A field that is a message.
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) -> &mut Message {
        let mut inner = Message::default();
        fill(&mut inner);
        self.data(field, &inner.bytes)
    }

    pub fn data(&mut self, field: u32, data: &[u8]) -> &mut Message {
        self.key(field, 2);
        self.varint(data.len() as u64);
        self.bytes.extend_from_slice(data);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_bytes_of_the_specification() {
        let mut message = Message::default();
        message.number(1, 150).string(2, "testing").fixed64(47, 1);
        let wanted = b"\x08\x96\x01\x12\x07testing\xf9\x02\x01\0\0\0\0\0\0\0";
        assert_eq!(message.bytes(), wanted);
        message.clear();
        message.message(3, |inner| {
            inner.number(1, u64::MAX);
        });
        assert_eq!(message.bytes(), b"\x1a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    }
}
