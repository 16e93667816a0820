//! The items of channels with a format: C values in place of Python objects, so that goroutines in C
//! send and receive them without the GIL.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyTuple};

/// Fields that an item may have.
const FIELDS: usize = 16;

/// One item, aligned as any C value.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Item([u8; 8 * FIELDS]);

impl Item {
    pub const ZERO: Item = Item([0; 8 * FIELDS]);

    pub fn as_ptr(&self) -> *const std::ffi::c_void {
        self.0.as_ptr().cast()
    }

    pub fn as_mut_ptr(&mut self) -> *mut std::ffi::c_void {
        self.0.as_mut_ptr().cast()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Signed(usize),
    Unsigned(usize),
    Bool,
    Float,
    Double,
    Char,
}

impl Kind {
    /// Python's `struct` has these letters, with C's sizes.
    fn of(code: u8) -> Option<Kind> {
        Some(match code {
            b'b' => Kind::Signed(1),
            b'h' => Kind::Signed(2),
            b'i' => Kind::Signed(4),
            b'l' | b'q' | b'n' => Kind::Signed(8),
            b'B' => Kind::Unsigned(1),
            b'H' => Kind::Unsigned(2),
            b'I' => Kind::Unsigned(4),
            b'L' | b'Q' | b'N' | b'P' => Kind::Unsigned(8),
            b'?' => Kind::Bool,
            b'f' => Kind::Float,
            b'd' => Kind::Double,
            b'c' => Kind::Char,
            _ => return None,
        })
    }

    fn size(self) -> usize {
        match self {
            Kind::Signed(size) | Kind::Unsigned(size) => size,
            Kind::Bool | Kind::Char => 1,
            Kind::Float => 4,
            Kind::Double => 8,
        }
    }
}

/// How an item is laid out: as a C struct with these fields.
pub struct Format {
    text: String,
    fields: Vec<(Kind, usize)>,
    size: usize,
}

impl Format {
    pub fn new(text: &str) -> PyResult<Format> {
        let refuse = || {
            PyValueError::new_err(format!(
                "a format is 1 to {FIELDS} letters of 'bBhHiIlLqQnNP?fdc', as in the struct module, not {text:?}"
            ))
        };
        let (mut fields, mut end, mut widest) = (Vec::new(), 0_usize, 1);
        for code in text.strip_prefix('@').unwrap_or(text).bytes() {
            let kind = Kind::of(code).ok_or_else(refuse)?;
            let at = end.next_multiple_of(kind.size());
            fields.push((kind, at));
            end = at + kind.size();
            widest = widest.max(kind.size());
        }
        if fields.is_empty() || fields.len() > FIELDS {
            return Err(refuse());
        }
        Ok(Format { text: text.to_owned(), fields, size: end.next_multiple_of(widest) })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// As C's `sizeof`.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether values of both formats have one C layout.
    pub fn matches(&self, other: &Format) -> bool {
        self.fields == other.fields
    }

    /// The value as C has it: one for a format of one letter, else a tuple.
    pub fn pack(&self, value: &Bound<'_, PyAny>) -> PyResult<Item> {
        let mut item = Item::ZERO;
        if let [(kind, _)] = self.fields[..] {
            put(kind, value, &mut item.0)?;
            return Ok(item);
        }
        let tuple = value.cast::<PyTuple>().ok().filter(|tuple| tuple.len() == self.fields.len());
        let tuple = tuple.ok_or_else(|| {
            let count = self.fields.len();
            PyTypeError::new_err(format!("items of this channel are tuples of {count} values"))
        })?;
        for (&(kind, at), value) in self.fields.iter().zip(tuple.iter_borrowed()) {
            put(kind, &value, &mut item.0[at..])?;
        }
        Ok(item)
    }

    pub fn unpack<'py>(&self, py: Python<'py>, item: &Item) -> PyResult<Bound<'py, PyAny>> {
        if let [(kind, _)] = self.fields[..] {
            return Ok(get(py, kind, &item.0));
        }
        let values = self.fields.iter().map(|&(kind, at)| get(py, kind, &item.0[at..]));
        Ok(PyTuple::new(py, values.collect::<Vec<_>>())?.into_any())
    }
}

fn put(kind: Kind, value: &Bound<'_, PyAny>, to: &mut [u8]) -> PyResult<()> {
    let range = || PyOverflowError::new_err("the number is too large for this channel");
    match kind {
        Kind::Signed(size) => {
            let number: i64 = value.extract()?;
            if size < 8 && number >> (8 * size - 1) != number >> 63 {
                return Err(range());
            }
            to[..size].copy_from_slice(&number.to_le_bytes()[..size]);
        }
        Kind::Unsigned(size) => {
            let number: u64 = value.extract()?;
            if size < 8 && number >> (8 * size) != 0 {
                return Err(range());
            }
            to[..size].copy_from_slice(&number.to_le_bytes()[..size]);
        }
        Kind::Bool => to[0] = value.is_truthy()?.into(),
        Kind::Float => {
            let number: f64 = value.extract()?;
            if number.is_finite() && (number as f32).is_infinite() {
                return Err(range());
            }
            to[..4].copy_from_slice(&(number as f32).to_le_bytes());
        }
        Kind::Double => to[..8].copy_from_slice(&value.extract::<f64>()?.to_le_bytes()),
        Kind::Char => match value.cast::<PyBytes>().ok().map(|bytes| bytes.as_bytes()) {
            Some([byte]) => to[0] = *byte,
            _ => return Err(PyTypeError::new_err("a bytes object of length 1 is needed")),
        },
    }
    Ok(())
}

/// C values are little-endian on all machines that libgosched runs on.
fn get<'py>(py: Python<'py>, kind: Kind, from: &[u8]) -> Bound<'py, PyAny> {
    let word = |size: usize| {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&from[..size]);
        u64::from_le_bytes(bytes)
    };
    match kind {
        Kind::Signed(size) => {
            let unused = 64 - 8 * size as u32;
            PyInt::new(py, (word(size) << unused) as i64 >> unused).into_any()
        }
        Kind::Unsigned(size) => PyInt::new(py, word(size)).into_any(),
        Kind::Bool => PyBool::new(py, from[0] != 0).to_owned().into_any(),
        Kind::Float => PyFloat::new(py, f32::from_bits(word(4) as u32).into()).into_any(),
        Kind::Double => PyFloat::new(py, f64::from_bits(word(8))).into_any(),
        Kind::Char => PyBytes::new(py, &from[..1]).into_any(),
    }
}
