//! The command line's end of the socket.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};

use super::Request;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there, or one may not.
    #[error("cannot ask the balancer at '{}': {io}; {}", path.display(), remedy(io))]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        io: io::Error,
    },
    /// The balancer refused.
    #[error("{0}")]
    Refused(String),
    /// The answer makes no sense.
    #[error("the answer at '{}' is not understood: {error}; is another version of dwell running there?", path.display())]
    Strange {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

fn remedy(io: &io::Error) -> &'static str {
    match io.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            "is `dwell lb run` running? --socket names the api.socket of its configuration"
        }
        ErrorKind::PermissionDenied => "only its owner may: be root",
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "it does not answer: is it stopped?",
        _ => "has it ended?",
    }
}

/// A connection to a balancer.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    reader: BufReader<UnixStream>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Came<T> {
    Ok(T),
    Error(String),
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If nobody answers there.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let failed = |io| ClientError::Io { path: path.into(), io };
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(failed)?;
        Ok(Client { path: path.into(), reader: BufReader::new(stream) })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    ///
    /// If the balancer refuses, or is gone.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        let failed = |io| ClientError::Io { path: self.path.clone(), io };
        let strange = |error| ClientError::Strange { path: self.path.clone(), error };
        let mut line = serde_json::to_string(request).map_err(strange)?;
        line.push('\n');
        self.reader.get_mut().write_all(line.as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        if self.reader.read_line(&mut answer).map_err(failed)? == 0 {
            return Err(failed(ErrorKind::UnexpectedEof.into()));
        }
        match serde_json::from_str(&answer).map_err(strange)? {
            Came::Ok(value) => Ok(value),
            Came::Error(error) => Err(ClientError::Refused(error)),
        }
    }
}
