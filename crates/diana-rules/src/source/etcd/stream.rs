//! The lines of an answer that has no end.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// Reads one line after the other, each of a bounded length.
#[derive(Debug)]
pub(super) struct WaitQueues {
    body: Incoming,
    most: usize,
    /// The beginning of a line.
    line: Vec<u8>,
    /// What has come after its end.
    rest: Bytes,
}

impl WaitQueues {
    pub(super) fn new(body: Incoming, most: usize) -> Self {
        Self { body, most, line: Vec::new(), rest: Bytes::new() }
    }

    /// The next line, however long it takes. May be given up and called again: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let end = self.rest.iter().position(|byte| *byte == b'\n');
            let part = self.rest.split_to(end.unwrap_or(self.rest.len()));
            if self.line.len() + part.len() > self.most {
                return Err(format!("a line of its watch has more than {} bytes", self.most));
            }
            self.line.extend_from_slice(&part);
            if end.is_some() {
                // The line's end itself.
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
