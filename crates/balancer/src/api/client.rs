//! The client's end of the API, which the command line uses.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};

use super::Request;

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket cannot be used.
    #[error("cannot reach the balancer at '{}': {io}; {}", path.display(), remedy(io))]
    Io {
        /// The path of the socket.
        path: PathBuf,
        /// The cause.
        io: io::Error,
    },
    /// The balancer refused the request.
    #[error("{0}")]
    Refused(String),
    /// The answer is not understood.
    #[error("cannot understand the answer from '{}': {error}; is another version of dwell running there?", path.display())]
    Malformed {
        /// The path of the socket.
        path: PathBuf,
        /// The cause.
        error: serde_json::Error,
    },
}

fn remedy(io: &io::Error) -> &'static str {
    match io.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            "is `dwell lb run` running? --socket names the api.socket of its configuration"
        }
        ErrorKind::PermissionDenied => "only its owner may connect: run as root",
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "it does not answer: is it suspended?",
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
enum Reply<T> {
    Ok(T),
    Error(String),
}

impl Client {
    /// Connects to the balancer at a socket.
    ///
    /// # Errors
    ///
    /// If nothing accepts connections there.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let failed = |io| ClientError::Io { path: path.into(), io };
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(failed)?;
        Ok(Client { path: path.into(), reader: BufReader::new(stream) })
    }

    /// Waits for each answer for at most this time.
    ///
    /// # Errors
    ///
    /// If the time is 0.
    pub fn with_timeout(self, timeout: Duration) -> Result<Client, ClientError> {
        let set = self.reader.get_ref().set_read_timeout(Some(timeout));
        set.map_err(|io| ClientError::Io { path: self.path.clone(), io })?;
        Ok(self)
    }

    /// Sends a request and waits for its answer, for at most a minute unless told otherwise.
    ///
    /// # Errors
    ///
    /// If the balancer refuses the request, or is gone.
    pub fn request<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        let failed = |io| ClientError::Io { path: self.path.clone(), io };
        let malformed = |error| ClientError::Malformed { path: self.path.clone(), error };
        let mut line = serde_json::to_string(request).map_err(malformed)?;
        line.push('\n');
        self.reader.get_mut().write_all(line.as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        if self.reader.read_line(&mut answer).map_err(failed)? == 0 {
            return Err(failed(ErrorKind::UnexpectedEof.into()));
        }
        match serde_json::from_str(&answer).map_err(malformed)? {
            Reply::Ok(value) => Ok(value),
            Reply::Error(error) => Err(ClientError::Refused(error)),
        }
    }
}
