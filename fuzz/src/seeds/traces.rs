//! Seeds for the simulator's CSV reader.

pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    [
        (
            "heading",
            &b"start,client,packets,bytes\n# two clients\n12.5,b,3,700\r\n\n10,a,1,0\n11.000000001, b ,2,50"[..],
        ),
        ("plain", b"0,a,1,1\n0,a,2,1\n0.001,b,5,9\n0.5,c,30,1e3\n"),
        ("one", b"1e9,x,1,0"),
        ("empty", b"# nothing\n"),
        ("missing", "1,\u{e9},2".as_bytes()),
        ("not-utf8", b"1,a,2,3\n1,\xc3\xa9\xff,2,3"),
        ("no-number", b"nan,a,2,3"),
        ("too-many", b"1,a,2,3,4"),
        ("most", b"0,a,1073741824,1125899906842624\n10000000,b,1,0\n"),
        ("far", b"0,a,1,1\n99999999999,b,1,1\n"),
    ]
    .map(|(name, text)| (name, text.to_vec()))
    .into()
}
