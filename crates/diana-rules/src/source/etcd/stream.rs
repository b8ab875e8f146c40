//! The lines of a streaming response.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// Reads lines of a bounded length.
#[derive(Debug)]
pub(super) struct LineReader {
    body: Incoming,
    most: usize,
    /// The beginning of the current line.
    line: Vec<u8>,
    /// Received bytes after the current line.
    rest: Bytes,
}

impl LineReader {
    pub(super) fn new(body: Incoming, most: usize) -> Self {
        Self { body, most, line: Vec::new(), rest: Bytes::new() }
    }

    /// Returns the next line. Cancel safe: a dropped future loses no data.
    pub(super) async fn next(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let end = self.rest.iter().position(|byte| *byte == b'\n');
            let part = self.rest.split_to(end.unwrap_or(self.rest.len()));
            if self.line.len() + part.len() > self.most {
                return Err(format!("a line of its watch has more than {} bytes", self.most));
            }
            self.line.extend_from_slice(&part);
            if end.is_some() {
                // The newline.
                let _ = self.rest.split_to(1);
                return Ok(std::mem::take(&mut self.line));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.rest = frame.into_data().unwrap_or_default(),
                Some(Err(_)) | None => return Err("its watch broke off".to_owned()),
            }
        }
    }
}
