//! The command of a request to Redis (RESP): its name alone, never a key or a value.

use std::sync::Arc;

use super::text;

/// The longest name of a command.
const LONGEST: usize = 20;

/// Reads the beginning of an array of strings, of which the first names a command. `None` if it is not one: an answer may be
/// such an array too, so only the names that Redis, Valkey and their like have themselves are shown.
pub(super) fn request(bytes: &[u8]) -> Option<Arc<str>> {
    let rest = line(bytes, b'*')?.1;
    let (length, rest) = line(rest, b'$')?;
    let name = rest.get(..length).filter(|_| length <= LONGEST)?.to_ascii_uppercase();
    let name = std::str::from_utf8(&name).ok()?;
    COMMANDS.binary_search(&name).is_ok().then(|| text::label("Redis", name.as_bytes(), false))
}

/// Reads a line with a number after a mark. Returns the number and what follows.
fn line(bytes: &[u8], mark: u8) -> Option<(usize, &[u8])> {
    const DIGITS: usize = 7;
    let rest = bytes.strip_prefix(&[mark])?;
    let end = rest.iter().take(DIGITS + 1).position(|byte| !byte.is_ascii_digit()).filter(|end| *end > 0)?;
    let number = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((number, rest[end..].strip_prefix(b"\r\n")?))
}

/// The commands of Redis 8, in the order of bytes.
#[rustfmt::skip]
const COMMANDS: &[&str] = &[
    "ACL", "APPEND", "ASKING", "AUTH", "BGREWRITEAOF", "BGSAVE", "BITCOUNT", "BITFIELD", "BITFIELD_RO", "BITOP", "BITPOS",
    "BLMOVE", "BLMPOP", "BLPOP", "BRPOP", "BRPOPLPUSH", "BZMPOP", "BZPOPMAX", "BZPOPMIN", "CLIENT", "CLUSTER", "COMMAND",
    "CONFIG", "COPY", "DBSIZE", "DEBUG", "DECR", "DECRBY", "DEL", "DISCARD", "DUMP", "ECHO", "EVAL", "EVALSHA", "EVALSHA_RO",
    "EVAL_RO", "EXEC", "EXISTS", "EXPIRE", "EXPIREAT", "EXPIRETIME", "FAILOVER", "FCALL", "FCALL_RO", "FLUSHALL", "FLUSHDB",
    "FUNCTION", "GEOADD", "GEODIST", "GEOHASH", "GEOPOS", "GEORADIUS", "GEORADIUSBYMEMBER", "GEORADIUSBYMEMBER_RO",
    "GEORADIUS_RO", "GEOSEARCH", "GEOSEARCHSTORE", "GET", "GETBIT", "GETDEL", "GETEX", "GETRANGE", "GETSET", "HDEL", "HELLO",
    "HEXISTS", "HEXPIRE", "HEXPIREAT", "HEXPIRETIME", "HGET", "HGETALL", "HGETDEL", "HGETEX", "HINCRBY", "HINCRBYFLOAT",
    "HKEYS", "HLEN", "HMGET", "HMSET", "HPERSIST", "HPEXPIRE", "HPEXPIREAT", "HPEXPIRETIME", "HPTTL", "HRANDFIELD", "HSCAN",
    "HSET", "HSETEX", "HSETNX", "HSTRLEN", "HTTL", "HVALS", "INCR", "INCRBY", "INCRBYFLOAT", "INFO", "KEYS", "LASTSAVE",
    "LATENCY", "LCS", "LINDEX", "LINSERT", "LLEN", "LMOVE", "LMPOP", "LOLWUT", "LPOP", "LPOS", "LPUSH", "LPUSHX", "LRANGE",
    "LREM", "LSET", "LTRIM", "MEMORY", "MGET", "MIGRATE", "MODULE", "MONITOR", "MOVE", "MSET", "MSETNX", "MULTI", "OBJECT",
    "PERSIST", "PEXPIRE", "PEXPIREAT", "PEXPIRETIME", "PFADD", "PFCOUNT", "PFDEBUG", "PFMERGE", "PFSELFTEST", "PING", "PSETEX",
    "PSUBSCRIBE", "PSYNC", "PTTL", "PUBLISH", "PUBSUB", "PUNSUBSCRIBE", "QUIT", "RANDOMKEY", "READONLY", "READWRITE", "RENAME",
    "RENAMENX", "REPLCONF", "REPLICAOF", "RESET", "RESTORE", "ROLE", "RPOP", "RPOPLPUSH", "RPUSH", "RPUSHX", "SADD", "SAVE",
    "SCAN", "SCARD", "SCRIPT", "SDIFF", "SDIFFSTORE", "SELECT", "SET", "SETBIT", "SETEX", "SETNX", "SETRANGE", "SHUTDOWN",
    "SINTER", "SINTERCARD", "SINTERSTORE", "SISMEMBER", "SLAVEOF", "SLOWLOG", "SMEMBERS", "SMISMEMBER", "SMOVE", "SORT",
    "SORT_RO", "SPOP", "SPUBLISH", "SRANDMEMBER", "SREM", "SSCAN", "SSUBSCRIBE", "STRLEN", "SUBSCRIBE", "SUBSTR", "SUNION",
    "SUNIONSTORE", "SUNSUBSCRIBE", "SWAPDB", "SYNC", "TIME", "TOUCH", "TTL", "TYPE", "UNLINK", "UNSUBSCRIBE", "UNWATCH", "WAIT",
    "WAITAOF", "WATCH", "XACK", "XADD", "XAUTOCLAIM", "XCLAIM", "XDEL", "XGROUP", "XINFO", "XLEN", "XPENDING", "XRANGE",
    "XREAD", "XREADGROUP", "XREVRANGE", "XSETID", "XTRIM", "ZADD", "ZCARD", "ZCOUNT", "ZDIFF", "ZDIFFSTORE", "ZINCRBY",
    "ZINTER", "ZINTERCARD", "ZINTERSTORE", "ZLEXCOUNT", "ZMPOP", "ZMSCORE", "ZPOPMAX", "ZPOPMIN", "ZRANDMEMBER", "ZRANGE",
    "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZRANGESTORE", "ZRANK", "ZREM", "ZREMRANGEBYLEX", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE",
    "ZREVRANGE", "ZREVRANGEBYLEX", "ZREVRANGEBYSCORE", "ZREVRANK", "ZSCAN", "ZSCORE", "ZUNION", "ZUNIONSTORE",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_its_name_and_no_argument() {
        assert!(COMMANDS.is_sorted() && COMMANDS.iter().all(|name| name.len() <= LONGEST));
        for (bytes, label) in [
            ("*2\r\n$3\r\nGET\r\n$6\r\nsecret\r\n", Some("Redis GET")),
            ("*3\r\n$3\r\nset\r\n$1\r\na\r\n", Some("Redis SET")),
            ("*1\r\n$4\r\nPING", Some("Redis PING")),
            ("*2\r\n$6\r\nsecret\r\n", None),
            ("*1\r\n$4\r\nPIN", None),
            ("*-1\r\n", None),
            ("*2\r\n:3\r\n", None),
            ("*99999999\r\n$4\r\nPING\r\n", None),
            ("*1\r\n$99999999999999999999\r\nPING\r\n", None),
            ("*", None),
        ] {
            assert_eq!(request(bytes.as_bytes()).as_deref(), label, "{bytes}");
        }
    }
}
