//! `std::io`, for threads that may block.

use super::Throttled;
use std::io::{Read, Result, Write};

impl<T: Read> Read for Throttled<T> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let Some(reading) = &mut self.reading else { return self.io.read(into) };
        if reading.rest().is_empty() {
            reading.fill(into.len(), |buffer| self.io.read(buffer))?;
        }
        let wanted = reading.wanted(into.len());
        if wanted == 0 {
            return Ok(0);
        }
        let paid = reading.permits.blocking_chunk(wanted)?;
        let passed = reading.pass(paid);
        into.split_at_mut(passed.len()).0.copy_from_slice(passed);
        let length = passed.len();
        reading.permits.transferred(length);
        Ok(length)
    }
}

impl<T: Write> Write for Throttled<T> {
    fn write(&mut self, from: &[u8]) -> Result<usize> {
        let Some(permits) = &mut self.writing else { return self.io.write(from) };
        if from.is_empty() {
            return self.io.write(from);
        }
        let paid = permits.blocking_chunk(from.len())?;
        let written = self.io.write(from.get(..paid).unwrap_or(from));
        permits.transferred(*written.as_ref().unwrap_or(&0));
        written
    }

    fn flush(&mut self) -> Result<()> {
        self.io.flush()
    }
}
