//! Location and exception tables, whose format CPython 3.11 and later share (`Objects/locations.md`,
//! `Objects/exception_handling_notes.txt`).

use crate::DecodeError;

/// Line per code unit; `None` where there is no line.
pub fn lines(table: &[u8], firstline: u32, units: usize) -> Result<Vec<Option<u32>>, DecodeError> {
    let mut lines = Vec::with_capacity(units);
    let mut runs = Runs::new(table, firstline);
    while let Some((length, location)) = runs.next()? {
        lines.resize(lines.len() + length, location.and_then(|l| u32::try_from(l.line).ok()));
    }
    lines.resize(units, None);
    Ok(lines)
}

/// Where code stands in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// From 1.
    pub line: i64,
    /// From 1.
    pub end_line: i64,
    /// In bytes, from 0.
    pub column: Option<u64>,
    /// In bytes, from 0, behind the last.
    pub end_column: Option<u64>,
}

impl Location {
    /// A line and nothing more.
    pub fn of_line(line: u32) -> Location {
        Location { line: i64::from(line), end_line: i64::from(line), column: None, end_column: None }
    }
}

/// The location of one code unit.
pub fn location(table: &[u8], firstline: u32, unit: u32) -> Result<Option<Location>, DecodeError> {
    let (mut runs, mut end) = (Runs::new(table, firstline), 0);
    while let Some((length, location)) = runs.next()? {
        end += length;
        if unit as usize >= end {
            continue;
        }
        return Ok(location);
    }
    Ok(None)
}

/// What the table says behind its first `units` code units; `None` if none of its entries ends there.
pub fn locations_behind(table: &[u8], units: usize) -> Result<Option<&[u8]>, DecodeError> {
    let (mut runs, mut end) = (Runs::new(table, 0), 0);
    while end < units {
        match runs.next()? {
            Some((length, _)) => end += length,
            None => return Ok(None),
        }
    }
    Ok((end == units).then(|| &table[runs.bytes.at..]))
}

/// The entries of a location table: how many code units, and where they are.
struct Runs<'a> {
    bytes: Bytes<'a>,
    line: i64,
}

impl<'a> Runs<'a> {
    fn new(table: &'a [u8], firstline: u32) -> Runs<'a> {
        Runs { bytes: Bytes { data: table, at: 0 }, line: i64::from(firstline) }
    }

    fn next(&mut self) -> Result<Option<(usize, Option<Location>)>, DecodeError> {
        let Some(first) = self.bytes.next() else { return Ok(None) };
        let length = usize::from(first & 7) + 1;
        let form = (first >> 3) & 15;
        if form == 15 {
            return Ok(Some((length, None)));
        }
        let location = self.location(form).ok_or(DecodeError::LocationTable)?;
        Ok(Some((length, Some(location))))
    }

    /// The location of an entry in this form; `None` if it is cut short.
    fn location(&mut self, form: u8) -> Option<Location> {
        let bytes = &mut self.bytes;
        let (mut column, mut end_column, mut lines) = (None, None, 0);
        match form {
            // Same line, columns below 80.
            0..=9 => {
                let low = bytes.next()?;
                let start = u64::from(form) << 3 | u64::from(low >> 4);
                (column, end_column) = (Some(start), Some(start + u64::from(low & 15)));
            }
            10..=12 => {
                self.line += i64::from(form - 10);
                (column, end_column) = (Some(u64::from(bytes.next()?)), Some(u64::from(bytes.next()?)));
            }
            13 => self.line += signed(bytes.little()?),
            _ => {
                self.line += signed(bytes.little()?);
                lines = bytes.little()?;
                (column, end_column) = (bytes.little()?.checked_sub(1), bytes.little()?.checked_sub(1));
            }
        }
        Some(Location { line: self.line, end_line: self.line + lines as i64, column, end_column })
    }
}

/// Writes a location table.
pub struct LocationWriter {
    table: Vec<u8>,
    line: i64,
}

impl LocationWriter {
    /// For a code object whose first line this is.
    pub fn new(firstline: u32) -> LocationWriter {
        LocationWriter { table: Vec::new(), line: i64::from(firstline) }
    }

    /// The next `units` code units are here.
    pub fn put(&mut self, mut units: usize, location: Option<Location>) {
        while units > 0 {
            let length = units.min(8);
            units -= length;
            let form = match location {
                None => 15,
                Some(l) if l == Location { column: None, end_column: None, end_line: l.line, ..l } => 13,
                Some(_) => 14,
            };
            self.table.push(128 | form << 3 | (length - 1) as u8);
            let Some(l) = location else { continue };
            let delta = l.line - self.line;
            self.line = l.line;
            little(&mut self.table, delta.unsigned_abs() << 1 | u64::from(delta < 0));
            if form == 14 {
                little(&mut self.table, (l.end_line - l.line).unsigned_abs());
                little(&mut self.table, l.column.map_or(0, |c| c + 1));
                little(&mut self.table, l.end_column.map_or(0, |c| c + 1));
            }
        }
    }

    /// The line that the next entry is relative to.
    pub fn line(&self) -> i64 {
        self.line
    }

    /// The table.
    pub fn finish(self) -> Vec<u8> {
        self.table
    }
}

fn little(out: &mut Vec<u8>, mut value: u64) {
    while value >= 64 {
        out.push(64 | (value & 63) as u8);
        value >>= 6;
    }
    out.push(value as u8);
}

/// An exception table entry in code units.
#[derive(Clone, Copy)]
pub struct Entry {
    pub start: u32,
    pub length: u32,
    pub target: u32,
    pub depth: u32,
    pub lasti: bool,
}

/// The entries in order.
pub fn exceptions(table: &[u8]) -> Result<Vec<Entry>, DecodeError> {
    let mut bytes = Bytes { data: table, at: 0 };
    let mut entries = Vec::new();
    while bytes.at < table.len() {
        let mut field = || bytes.big().ok_or(DecodeError::ExceptionTable);
        let (start, length, target, depth) = (field()?, field()?, field()?, field()?);
        entries.push(Entry { start, length, target, depth: depth >> 1, lasti: depth & 1 != 0 });
    }
    Ok(entries)
}

/// The table of these entries, which come by rising `start`.
pub fn exception_table(entries: &[Entry]) -> Vec<u8> {
    let mut table = Vec::new();
    for e in entries {
        let begin = table.len();
        for field in [e.start, e.length, e.target, e.depth << 1 | u32::from(e.lasti)] {
            big(&mut table, field);
        }
        table[begin] |= 128;
    }
    table
}

fn big(out: &mut Vec<u8>, value: u32) {
    for shift in [30, 24, 18, 12, 6] {
        if value >> shift != 0 {
            out.push(64 | (value >> shift & 63) as u8);
        }
    }
    out.push((value & 63) as u8);
}

struct Bytes<'a> {
    data: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.data.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    /// Six bits a byte, least significant first, bit 6 set while more follow.
    fn little(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.next()?;
            value |= u64::from(byte & 63).checked_shl(shift)?;
            shift += 6;
            if byte & 64 == 0 {
                return Some(value);
            }
        }
    }

    /// Six bits a byte, most significant first.
    fn big(&mut self) -> Option<u32> {
        let mut value = 0_u32;
        loop {
            let byte = self.next()?;
            value = value.checked_mul(64)? | u32::from(byte & 63);
            if byte & 64 == 0 {
                return Some(value);
            }
        }
    }
}

/// The lowest bit is the sign.
fn signed(value: u64) -> i64 {
    let magnitude = (value >> 1) as i64;
    if value & 1 == 0 { magnitude } else { -magnitude }
}
