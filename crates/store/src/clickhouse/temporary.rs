//! A store in a temporary file, for a report of what is elsewhere.

use std::path::Path;

use rusqlite::Connection;

use crate::{
    Reader, Store, StoreError,
    sqlite::{Writers, failed},
};

impl Store {
    /// Creates a store in a file without a name, which is gone however the process ends. Errors call it `name`.
    pub(crate) fn temporary(name: &str) -> Result<Store, StoreError> {
        let path = Path::new(name);
        // Without a path, SQLite makes such a file below TMPDIR, or else in /var/tmp.
        let db = Connection::open("").map_err(|sqlite| failed("open", path, sqlite))?;
        Store::with(db, path, None, Writers::Several)
    }

    /// Returns the size of its file in bytes.
    pub(crate) fn bytes(&self) -> Result<u64, StoreError> {
        let sql = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
        let bytes = self.db().query_row(sql, [], |row| row.get::<_, i64>(0));
        bytes.map(i64::cast_unsigned).map_err(|sqlite| self.failed("read", sqlite))
    }

    /// Adds a run of each host, so that all of them have agents.
    pub(crate) fn add_runs(&self, now_ns: i64) -> Result<(), StoreError> {
        let sql = "INSERT INTO run (host_id, run, begun_ns, last_batch) SELECT host_id, zeroblob(16), ?1, 1 FROM host";
        self.db().execute(sql, [now_ns]).map(drop).map_err(|sqlite| self.failed("write", sqlite))
    }

    /// Reads what was written. Nobody else could open the file.
    pub(crate) fn into_reader(self) -> Result<Reader, StoreError> {
        let (db, path) = self.into_db();
        Reader::begin(db, path)
    }
}
