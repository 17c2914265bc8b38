//! The canonical protobuf encoding of specifications and uploads, whose bytes must be fixed.
//!
//! A specification's digest covers its bytes, and a retry must resend the same bytes. Protobuf
//! leaves an encoder some freedom. The canonical encoding fixes it: fields in ascending order,
//! defaults left out, varints of minimal length. A protobuf decoder reads the result like any other
//! message.

/// Protobuf's wire types of the fields in use.
#[derive(Clone, Copy)]
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Length = 2,
}

/// Appends canonical fields to a buffer. Callers add them in ascending order.
pub(crate) struct Writer<'b> {
    buffer: &'b mut Vec<u8>,
}

impl<'b> Writer<'b> {
    pub(crate) fn new(buffer: &'b mut Vec<u8>) -> Self {
        Self { buffer }
    }

    fn varint_bare(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                self.buffer.push(low);
                return;
            }
            self.buffer.push(low | 0x80);
        }
    }

    fn tag(&mut self, field: u32, wire_type: WireType) {
        self.varint_bare(u64::from(field << 3) | wire_type as u64);
    }

    pub(crate) fn varint(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.tag(field, WireType::Varint);
            self.varint_bare(value);
        }
    }

    /// `sint32` in zigzag form.
    pub(crate) fn signed(&mut self, field: u32, value: i32) {
        let zigzag = (value.cast_unsigned() << 1) ^ (value >> 31).cast_unsigned();
        self.varint(field, u64::from(zigzag));
    }

    pub(crate) fn fixed64(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.tag(field, WireType::Fixed64);
            self.buffer.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(crate) fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.message(field, value);
        }
    }

    /// A length-delimited field that is present even when empty.
    pub(crate) fn message(&mut self, field: u32, value: &[u8]) {
        self.tag(field, WireType::Length);
        self.varint_bare(value.len() as u64);
        self.buffer.extend_from_slice(value);
    }

    /// `repeated uint32`, packed.
    pub(crate) fn packed(&mut self, field: u32, values: impl Iterator<Item = u32> + Clone) {
        let length: usize = values.clone().map(varint_length).sum();
        if length > 0 {
            self.tag(field, WireType::Length);
            self.varint_bare(length as u64);
            values.for_each(|value| self.varint_bare(u64::from(value)));
        }
    }
}

/// Length of the varint of `value` in bytes, 1 to 5.
fn varint_length(value: u32) -> usize {
    (38 - (value | 1).leading_zeros() as usize) / 7
}
