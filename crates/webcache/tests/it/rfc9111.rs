//! Cases of RFC 9111 and RFC 5861, one by one.

use crate::common::{Reply, Rig, refused, response};
use bentpipe_webcache::{OriginError, Outcome};

/// A first request with its response, and `after` seconds later a second one with the origin's
/// reply to it.
struct Case {
    /// Section of the RFC.
    section: &'static str,
    first: &'static str,
    answer: &'static str,
    after: i64,
    second: &'static str,
    origin: &'static str,
    expect: Expect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// Served from the store without a request to the origin.
    Hit,
    /// Served stale from the store. The origin may be asked in the background.
    Stale,
    /// Fetched as if nothing were stored.
    Fetched,
    /// The origin confirmed the stored response.
    Validated,
    /// The origin answered a validation with a new response.
    Replaced,
    /// The origin failed or could not be reached, and the stored response was used stale.
    StaleIfError,
    /// The origin's failure was forwarded.
    Failed,
    /// 504, because only a stored response was acceptable.
    OnlyIfCached,
    /// 304 from the store.
    NotModified,
}
use Expect::{
    Failed, Fetched, Hit, NotModified, OnlyIfCached, Replaced, Stale, StaleIfError, Validated,
};

macro_rules! cases {
    ($($section:literal: $first:literal => $answer:literal, $after:literal s,
       $second:literal => $origin:literal: $expect:ident;)*) => {
        &[$(Case {
            section: $section, first: $first, answer: $answer, after: $after, second: $second,
            origin: $origin, expect: $expect,
        }),*]
    };
}

#[rustfmt::skip]
const CASES: &[Case] = cases! {
    // Storing (§3).
    "3 a status by default": "" => "200; last-modified: Sat, 08 Sep 2001 01:46:40 GMT", 60 s, "" => "200": Hit;
    "3 neither lifetime nor validator": "" => "200", 0 s, "" => "200": Fetched;
    "3 404 for a moment": "" => "404; cache-control: max-age=60", 9 s, "" => "200": Hit;
    "own: 404 for at most 10 s": "" => "404; cache-control: max-age=60, stale-while-revalidate=60", 11 s, "" => "200": Fetched;
    "own: 404 for less if the origin says so": "" => "404; cache-control: max-age=5", 6 s, "" => "200": Fetched;
    "own: 404 is not used stale": "" => "404; cache-control: max-age=60", 20 s, "" => "offline": Failed;
    "3 302 only with explicit times": "" => "302; location: /x; etag: \"a\"", 0 s, "" => "200": Fetched;
    "3 302 with explicit times": "" => "302; location: /x; cache-control: max-age=60", 0 s, "" => "200": Hit;
    "3 206 is never stored": "" => "206; content-range: bytes 0-2/9; cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "3 no-store in the response": "" => "cache-control: no-store, max-age=60", 0 s, "" => "200": Fetched;
    "3 no-store ignores case": "" => "cache-control: NO-Store, max-age=60", 0 s, "" => "200": Fetched;
    "3 no-store in the request": "cache-control: no-store" => "cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "3 private": "" => "cache-control: private, max-age=60", 0 s, "" => "200": Fetched;
    "3 private of a field": "" => "cache-control: private=\"set-cookie\", max-age=60", 0 s, "" => "200": Fetched;
    "3.5 Authorization, even if public": "authorization: Basic x" => "cache-control: public, s-maxage=60", 0 s, "" => "200": Fetched;
    "3.5 nothing stored for a client with credentials": "" => "cache-control: max-age=60", 0 s, "authorization: Basic x" => "200": Fetched;
    "5.2.2.3 must-understand, unknown status": "" => "299; cache-control: must-understand, max-age=60", 0 s, "" => "200": Fetched;
    "5.2.2.3 must-understand beside no-store": "" => "cache-control: must-understand, no-store, max-age=60", 0 s, "" => "200": Hit;
    "5.2.2.3 must-understand beside no-store, unknown status": "" => "299; cache-control: must-understand, no-store, max-age=60", 0 s, "" => "200": Fetched;
    "5.2.2.3 must-understand, known status": "" => "301; location: /x; cache-control: must-understand, max-age=60", 59 s, "" => "200": Hit;
    "3 410 by default": "" => "410; last-modified: Sat, 08 Sep 2001 01:46:40 GMT", 9 s, "" => "200": Hit;
    "3 500 only with explicit times": "" => "500; last-modified: Sat, 08 Sep 2001 01:46:40 GMT", 0 s, "" => "200": Fetched;
    "own: 500 may be about one request": "" => "500; cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "own: 400 may be about one request": "referer: http://a.test/" => "400; cache-control: public, max-age=60", 0 s, "" => "200": Fetched;
    "own: 414 may be about one request": "" => "414; cache-control: public, s-maxage=60", 0 s, "" => "200": Fetched;
    "own: 431 may be about one request": "" => "431; cache-control: max-age=60; etag: \"a\"", 0 s, "" => "200": Fetched;
    "own: 405 may be about one request": "" => "405; cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "3 public makes a status heuristically cacheable": "" => "302; cache-control: public; last-modified: Thu, 01 Jan 1998 00:00:00 GMT", 60 s, "" => "200": Hit;
    "3.5 Authorization, even with must-revalidate": "authorization: Basic x" => "cache-control: must-revalidate, max-age=60", 0 s, "" => "200": Fetched;
    "5.2 an unknown directive": "" => "cache-control: max-age=60, community=\"a, no-store\"", 59 s, "" => "200": Hit;
    "5.2 a value in quotes": "" => "cache-control: max-age=\"60\"", 59 s, "" => "200": Hit;
    "5.4 Pragma in a response is ignored": "" => "pragma: no-cache; cache-control: max-age=60", 59 s, "" => "200": Hit;
    "9213 CDN-Cache-Control allows": "" => "cache-control: no-store; cdn-cache-control: max-age=60", 59 s, "" => "200": Hit;
    "9213 CDN-Cache-Control forbids": "" => "cache-control: max-age=60; cdn-cache-control: no-store", 0 s, "" => "200": Fetched;
    "9213 CDN-Cache-Control before a longer time": "" => "cache-control: max-age=600; cdn-cache-control: max-age=60", 61 s, "" => "200": Fetched;
    "9213 CDN-Cache-Control before Expires": "" => "expires: Thu, 01 Jan 2099 00:00:00 GMT; cdn-cache-control: max-age=60", 61 s, "" => "200": Fetched;
    "9213 invalid CDN-Cache-Control": "" => "cache-control: max-age=60; cdn-cache-control: max-age=600, &", 61 s, "" => "200": Fetched;
    "9213 empty CDN-Cache-Control": "" => "cache-control: max-age=60; cdn-cache-control: ", 59 s, "" => "200": Hit;
    "own: Surrogate-Control is for others": "" => "cache-control: private; surrogate-control: max-age=60", 0 s, "" => "200": Fetched;
    "7.3 Set-Cookie is for one": "" => "cache-control: public, max-age=60; set-cookie: id=1", 0 s, "" => "200": Fetched;
    "own: a cookie without public or s-maxage": "cookie: id=1" => "cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "own: a cookie, and public": "cookie: id=1" => "cache-control: public, max-age=60", 0 s, "" => "200": Hit;
    "own: a cookie gets no heuristically fresh response": "" => "last-modified: Sat, 08 Sep 2001 01:46:40 GMT", 1 s, "cookie: id=1" => "304": Validated;
    "own: a challenge is for one": "" => "401; www-authenticate: Basic; cache-control: max-age=60", 0 s, "" => "200": Fetched;

    "own: field that browsers do not send": "x-forwarded-host: evil.test" => "cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "own: another field that browsers do not send": "x-original-url: /admin" => "cache-control: public, max-age=60", 0 s, "" => "200": Fetched;
    "own: field that browsers do not send, named by Vary": "x-a: 1" => "cache-control: max-age=60; vary: X-A", 0 s, "x-a: 1" => "200": Hit;
    "own: fields that browsers send": "user-agent: x; referer: http://a.test/; sec-fetch-mode: no-cors; accept-language: de" => "cache-control: max-age=60", 0 s, "" => "200": Hit;
    "own: field that browsers do not send, prefix accept-": "accept-x: 1" => "cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "own: field that browsers do not send, prefix sec-": "sec-x: 1" => "cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "own: field that browsers do not send, prefix if-": "if-x: 1" => "cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "own: fields of players and applications": "x-playback-session-id: 7; ms-cv: a.1; icy-metadata: 1; x-requested-with: org.example.app" => "cache-control: max-age=60", 0 s, "" => "200": Hit;
    "own: XMLHttpRequest": "x-requested-with: XMLHttpRequest" => "cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "own: icy-metadata with titles": "icy-metadata: 1" => "icy-metaint: 8192; cache-control: max-age=60", 0 s, "" => "200": Fetched;
    "own: for one site to read": "origin: http://a.test" => "cache-control: max-age=60; access-control-allow-origin: http://a.test", 0 s, "" => "200": Fetched;
    "own: for every site to read": "origin: http://a.test" => "cache-control: max-age=60; access-control-allow-origin: *", 0 s, "" => "200": Hit;

    // Freshness (§4.2).
    "4.2.1 max-age": "" => "cache-control: max-age=60", 59 s, "" => "200": Hit;
    "4.2 stale at its end": "" => "cache-control: max-age=60", 60 s, "" => "200": Fetched;
    "4.2.1 s-maxage before max-age": "" => "cache-control: max-age=60, s-maxage=600", 599 s, "" => "200": Hit;
    "4.2.1 s-maxage before max-age, shorter": "" => "cache-control: max-age=600, s-maxage=60", 61 s, "" => "200": Fetched;
    "4.2.1 max-age before Expires": "" => "cache-control: max-age=60; expires: Thu, 01 Jan 2099 00:00:00 GMT", 61 s, "" => "200": Fetched;
    "4.2.1 Expires less Date": "" => "date: Sun, 09 Sep 2001 00:00:00 GMT; expires: Sun, 09 Sep 2001 00:01:00 GMT", 59 s, "" => "200": Hit;
    "4.2.1 Expires less Date, over": "" => "date: Sun, 09 Sep 2001 00:00:00 GMT; expires: Sun, 09 Sep 2001 00:01:00 GMT; etag: \"a\"", 61 s, "" => "304": Validated;
    "5.3 invalid Expires": "" => "expires: 0; etag: \"a\"", 0 s, "" => "304": Validated;
    "5.3 Expires in an old form": "" => "date: Sun, 09 Sep 2001 00:00:00 GMT; expires: Sunday, 09-Sep-01 00:01:00 GMT", 59 s, "" => "200": Hit;
    "5.3 two Expires": "" => "date: Sun, 09 Sep 2001 00:00:00 GMT; expires: Sun, 09 Sep 2001 00:01:00 GMT; expires: Sun, 09 Sep 2001 00:02:00 GMT; etag: \"a\"", 0 s, "" => "304": Validated;
    "5.3 Expires before Date": "" => "date: Sun, 09 Sep 2001 00:01:00 GMT; expires: Sun, 09 Sep 2001 00:00:00 GMT; etag: \"a\"", 0 s, "" => "304": Validated;
    "5.3 Expires with an invalid Date": "" => "date: yesterday; expires: Sun, 09 Sep 2001 01:47:40 GMT", 59 s, "" => "200": Hit;
    "5.3 Expires with an invalid Date, over": "" => "date: yesterday; expires: Sun, 09 Sep 2001 01:47:40 GMT", 61 s, "" => "200": Fetched;
    "4.2.1 max-age=0": "" => "cache-control: max-age=0; etag: \"a\"", 0 s, "" => "304": Validated;
    "4.2.1 s-maxage=0 before max-age": "" => "cache-control: max-age=60, s-maxage=0; etag: \"a\"", 0 s, "" => "304": Validated;
    "4.2.2 Last-Modified after Date gives no heuristic freshness": "" => "last-modified: Thu, 01 Jan 2099 00:00:00 GMT", 0 s, "" => "304": Validated;
    "4.2.2 not beside an explicit time": "" => "cache-control: max-age=5; last-modified: Thu, 01 Jan 1998 00:00:00 GMT", 6 s, "" => "304": Validated;
    "4.2.1 two max-age": "" => "cache-control: max-age=60, max-age=600; etag: \"a\"", 0 s, "" => "304": Validated;
    "4.2.1 max-age that is not a number": "" => "cache-control: max-age=a; etag: \"a\"", 0 s, "" => "304": Validated;
    "1.2.2 more seconds than fit": "" => "cache-control: max-age=99999999999999999999", 99999999 s, "" => "200": Hit;
    "4.2.2 a tenth of its age": "" => "last-modified: Sun, 09 Sep 2001 00:46:40 GMT", 359 s, "" => "200": Hit;
    "4.2.2 a tenth of its age, over": "" => "last-modified: Sun, 09 Sep 2001 00:46:40 GMT", 361 s, "" => "304": Validated;
    "4.2.2 a day at most": "" => "last-modified: Thu, 01 Jan 1998 00:00:00 GMT", 86401 s, "" => "304": Validated;
    "4.2.2 not for other statuses": "" => "302; last-modified: Thu, 01 Jan 1998 00:00:00 GMT", 0 s, "" => "200": Fetched;

    // Age (§4.2.3).
    "4.2.3 Age counts": "" => "cache-control: max-age=60; age: 30", 29 s, "" => "200": Hit;
    "4.2.3 Age counts, over": "" => "cache-control: max-age=60; age: 30", 31 s, "" => "200": Fetched;
    "4.2.3 a Date long ago does not age it": "" => "date: Mon, 01 Jan 2001 00:00:00 GMT; cache-control: max-age=60", 59 s, "" => "200": Hit;
    "4.2.3 a Date to come does not make it younger": "" => "date: Thu, 01 Jan 2099 00:00:00 GMT; cache-control: max-age=60", 61 s, "" => "200": Fetched;
    "4.2.3 Expires and Date of a clock that is ahead": "" => "date: Thu, 01 Jan 2099 00:00:00 GMT; expires: Thu, 01 Jan 2099 00:01:00 GMT", 59 s, "" => "200": Hit;
    "5.1 the first of two Ages": "" => "cache-control: max-age=60; age: 30; age: 1", 31 s, "" => "200": Fetched;
    "5.1 Age that is not a number": "" => "cache-control: max-age=60; age: x", 59 s, "" => "200": Hit;
    "5.1 an enormous Age": "" => "cache-control: max-age=60; age: 18446744073709551615; etag: \"a\"", 0 s, "" => "304": Validated;
    "4.2.3 our clock has gone back": "" => "cache-control: max-age=60; etag: \"a\"", -5 s, "" => "304": Validated;

    // Request directives (§5.2.1).
    "5.2.1.4 no-cache": "" => "cache-control: max-age=60; etag: \"a\"", 0 s, "cache-control: no-cache" => "304": Validated;
    "5.4 Pragma": "" => "cache-control: max-age=60; etag: \"a\"", 0 s, "pragma: no-cache" => "304": Validated;
    "5.4 Pragma beside Cache-Control": "" => "cache-control: max-age=60", 0 s, "pragma: no-cache; cache-control: max-age=5" => "200": Hit;
    "5.2.1.1 max-age": "" => "cache-control: max-age=60; etag: \"a\"", 30 s, "cache-control: max-age=20" => "304": Validated;
    "5.2.1.1 max-age, young enough": "" => "cache-control: max-age=60", 30 s, "cache-control: max-age=40" => "200": Hit;
    "5.2.1.3 min-fresh": "" => "cache-control: max-age=60; etag: \"a\"", 30 s, "cache-control: min-fresh=40" => "304": Validated;
    "5.2.1.3 min-fresh, fresh enough": "" => "cache-control: max-age=60", 30 s, "cache-control: min-fresh=20" => "200": Hit;
    "5.2.1.1 max-age=0, and nothing to confirm by": "" => "cache-control: max-age=60", 1 s, "cache-control: max-age=0" => "200": Fetched;
    "5.2.1.3 min-fresh, stale": "" => "cache-control: max-age=60; etag: \"a\"", 61 s, "cache-control: min-fresh=0" => "304": Validated;
    "5.2.1.3 min-fresh before stale-while-revalidate": "" => "cache-control: max-age=60, stale-while-revalidate=60; etag: \"a\"", 61 s, "cache-control: min-fresh=1" => "304": Validated;
    "5.2.1.1 max-age before stale-while-revalidate": "" => "cache-control: max-age=60, stale-while-revalidate=60; etag: \"a\"", 61 s, "cache-control: max-age=90" => "304": Validated;
    "5.2.1.1 max-age beside max-stale": "" => "cache-control: max-age=60; etag: \"a\"", 90 s, "cache-control: max-age=80, max-stale" => "304": Validated;
    "5.2.1.2 max-stale": "" => "cache-control: max-age=60", 90 s, "cache-control: max-stale=40" => "200": Stale;
    "5.2.1.2 max-stale, too stale": "" => "cache-control: max-age=60; etag: \"a\"", 90 s, "cache-control: max-stale=20" => "304": Validated;
    "5.2.1.2 max-stale without a bound": "" => "cache-control: max-age=60", 9000 s, "cache-control: max-stale" => "200": Stale;
    "5.2.2.2 must-revalidate before max-stale": "" => "cache-control: max-age=60, must-revalidate; etag: \"a\"", 61 s, "cache-control: max-stale" => "304": Validated;
    "5.2.2.10 s-maxage before max-stale": "" => "cache-control: s-maxage=60; etag: \"a\"", 61 s, "cache-control: max-stale" => "304": Validated;
    "5.2.2.8 proxy-revalidate before max-stale": "" => "cache-control: max-age=60, proxy-revalidate; etag: \"a\"", 61 s, "cache-control: max-stale" => "304": Validated;
    "5.2.2.8 proxy-revalidate while fresh": "" => "cache-control: max-age=60, proxy-revalidate", 59 s, "" => "200": Hit;
    "5.2.1.7 only-if-cached": "" => "cache-control: no-store", 0 s, "cache-control: only-if-cached" => "200": OnlyIfCached;
    "5.2.1.7 only-if-cached, here": "" => "cache-control: max-age=60", 0 s, "cache-control: only-if-cached" => "200": Hit;
    "5.2.1.7 only-if-cached, stale": "" => "cache-control: max-age=60", 61 s, "cache-control: only-if-cached" => "200": OnlyIfCached;

    "5.2.1.7 only-if-cached and max-stale": "" => "cache-control: max-age=60", 80 s, "cache-control: only-if-cached, max-stale=30" => "200": Stale;
    "5.2.1.7 only-if-cached and no-cache": "" => "cache-control: max-age=60", 1 s, "cache-control: only-if-cached, no-cache" => "200": OnlyIfCached;

    // Validation (§4.3).
    "4.3.3 a failure does not remove the stored response": "" => "cache-control: max-age=60; etag: \"a\"", 61 s, "" => "500": Replaced;
    "4.3 by ETag": "" => "cache-control: max-age=60; etag: \"a\"", 61 s, "" => "304; etag: \"a\"": Validated;
    "4.3 by Last-Modified": "" => "cache-control: max-age=60; last-modified: Sat, 08 Sep 2001 01:46:40 GMT", 61 s, "" => "304": Validated;
    "4.3.3 something new": "" => "cache-control: max-age=60; etag: \"a\"", 61 s, "" => "200; etag: \"b\"": Replaced;
    "5.2.2.4 no-cache in the response": "" => "cache-control: no-cache, max-age=60; etag: \"a\"", 0 s, "" => "304": Validated;
    "5.2.2.4 no-cache of a field": "" => "cache-control: no-cache=\"x\", max-age=60; etag: \"a\"", 0 s, "" => "304": Validated;
    "4.3.2 If-None-Match": "" => "cache-control: max-age=60; etag: \"a\"", 1 s, "if-none-match: \"b\", W/\"a\"" => "200": NotModified;
    "4.3.2 If-None-Match, any": "" => "cache-control: max-age=60; etag: \"a\"", 1 s, "if-none-match: *" => "200": NotModified;
    "4.3.2 If-None-Match, another": "" => "cache-control: max-age=60; etag: \"a\"", 1 s, "if-none-match: \"b\"" => "200": Hit;
    "4.3.2 If-Modified-Since": "" => "cache-control: max-age=60; last-modified: Sat, 08 Sep 2001 01:46:40 GMT", 1 s, "if-modified-since: Sat, 08 Sep 2001 01:46:40 GMT" => "200": NotModified;
    "4.3.2 If-Modified-Since, earlier": "" => "cache-control: max-age=60; last-modified: Sat, 08 Sep 2001 01:46:40 GMT", 1 s, "if-modified-since: Fri, 07 Sep 2001 01:46:40 GMT" => "200": Hit;
    "4.3.2 If-None-Match before If-Modified-Since": "" => "cache-control: max-age=60; etag: \"a\"; last-modified: Sat, 08 Sep 2001 01:46:40 GMT", 1 s, "if-none-match: \"b\"; if-modified-since: Sat, 08 Sep 2001 01:46:40 GMT" => "200": Hit;
    "4.3.2 If-Match is the origin's": "" => "cache-control: max-age=60; etag: \"a\"", 1 s, "if-match: \"a\"" => "200": Fetched;

    // Vary (§4.1).
    "4.1 the same": "accept-encoding: gzip, br" => "cache-control: max-age=60; vary: Accept-Encoding", 1 s, "accept-encoding: BR,gzip" => "200": Hit;
    "4.1 another": "accept-encoding: gzip" => "cache-control: max-age=60; vary: accept-encoding", 1 s, "" => "200": Fetched;
    "4.1 absent is not empty": "" => "cache-control: max-age=60; vary: x", 1 s, "x: " => "200": Fetched;
    "4.1 anything": "" => "cache-control: max-age=60; vary: *", 1 s, "" => "200": Fetched;
    "4.1 anything, hidden in a list": "" => "cache-control: max-age=60; vary: accept; vary: x, *", 1 s, "" => "200": Fetched;
    "4.1 none in common with nothing": "" => "cache-control: max-age=60; vary: x, y", 1 s, "y: 1" => "200": Fetched;
    "4.1 order matters in other fields": "x: 1, 2" => "cache-control: max-age=60; vary: x", 1 s, "x: 2, 1" => "200": Fetched;
    "own: Vary by a cookie that was there": "cookie: a=1" => "cache-control: public, max-age=60; vary: cookie", 1 s, "cookie: a=1" => "200": Fetched;

    // Stale responses (§4.2.4, RFC 5861).
    "5861 stale-while-revalidate": "" => "cache-control: max-age=60, stale-while-revalidate=30; etag: \"a\"", 80 s, "" => "304": Stale;
    "5861 stale-while-revalidate, over": "" => "cache-control: max-age=60, stale-while-revalidate=30; etag: \"a\"", 91 s, "" => "304": Validated;
    "5861 stale-while-revalidate beside s-maxage, which forbids it": "" => "cache-control: s-maxage=60, stale-while-revalidate=30; etag: \"a\"", 80 s, "" => "304": Validated;
    "5861 stale-while-revalidate that is not a number": "" => "cache-control: max-age=60, stale-while-revalidate=x; etag: \"a\"", 61 s, "" => "304": Validated;
    "5861 must-revalidate before it": "" => "cache-control: max-age=60, stale-while-revalidate=30, must-revalidate; etag: \"a\"", 80 s, "" => "304": Validated;
    "5861 stale-if-error, 503": "" => "cache-control: max-age=60, stale-if-error=30", 80 s, "" => "503": StaleIfError;
    "5861 stale-if-error, no answer": "" => "cache-control: max-age=60, stale-if-error=30", 80 s, "" => "fails": StaleIfError;
    "5861 stale-if-error, over": "" => "cache-control: max-age=60, stale-if-error=30", 91 s, "" => "503": Fetched;
    "5861 stale-if-error, 404 is not an error": "" => "cache-control: max-age=60, stale-if-error=30", 80 s, "" => "404": Fetched;
    "5861 stale-if-error in the request": "" => "cache-control: max-age=60", 80 s, "cache-control: stale-if-error=30" => "500": StaleIfError;
    "5861 must-revalidate before stale-if-error": "" => "cache-control: max-age=60, stale-if-error=30, must-revalidate", 80 s, "" => "503": Fetched;
    "4.2.4 offline": "" => "cache-control: max-age=60", 8000 s, "" => "offline": StaleIfError;
    "4.2.4 offline, must-revalidate": "" => "cache-control: max-age=60, must-revalidate", 61 s, "" => "offline": Failed;
    "4.2.4 offline, no-cache": "" => "cache-control: no-cache; etag: \"a\"", 61 s, "" => "offline": Failed;
    "4.2.4 offline for too long": "" => "cache-control: max-age=60", 90000 s, "" => "offline": Failed;
    "4.2.4 a failure is not an outage": "" => "cache-control: max-age=60", 61 s, "" => "fails": Failed;
};

#[tokio::test]
async fn rfc_9111_and_5861_case_by_case() {
    for case in CASES {
        let rig = Rig::new();
        let is_304_safe = !case.answer.starts_with("304");
        assert!(is_304_safe, "{}", case.section);
        rig.reply_text(case.answer, "one");
        rig.get("/", case.first).await;
        rig.wait(case.after);
        rig.reply(match case.origin {
            "offline" => Reply::Error(OriginError::Offline),
            "fails" => Reply::Error(refused(1)),
            text if text.starts_with("304") => Reply::Whole(response(text).map(|()| "".into())),
            text => Reply::Whole(response(text).map(|()| "two".into())),
        });
        let got = rig.get("/", case.second).await;
        let conditional = || {
            let last = rig.last_request();
            last.contains_key("if-none-match") || last.contains_key("if-modified-since")
        };
        let body = got.body.clone().unwrap_or_default();
        let seen = match (rig.requests(), got.outcome) {
            (1, Outcome::OnlyIfCached) if got.status == 504 => OnlyIfCached,
            (1, _) if got.status == 304 => NotModified,
            (1, Outcome::Hit) if body == "one" => Hit,
            (1, Outcome::StaleHit) if body == "one" => Stale,
            (2, Outcome::StaleIfError) if body == "one" => StaleIfError,
            (2, Outcome::Validated) if conditional() && body == "one" => Validated,
            (2, Outcome::Miss(_)) if conditional() && body == "two" => Replaced,
            (2, Outcome::Miss(_)) if body == "two" => Fetched,
            (2, Outcome::Failed) => Failed,
            other => panic!("{}: {other:?} {got:?}", case.section),
        };
        assert_eq!(seen, case.expect, "{}: {got:?}", case.section);
        // A failed request costs a round trip too.
        let saves = got.outcome.saves_round_trip();
        assert_eq!(saves, matches!(seen, Hit | Stale | NotModified), "{}", case.section);
    }
}

#[tokio::test]
async fn a_response_to_an_oversized_request_header_is_not_shared() {
    for (bytes, hit) in [(7_000, true), (9_000, false)] {
        let rig = Rig::new();
        rig.reply_text("cache-control: max-age=60", "one");
        rig.get("/", &format!("referer: http://a.test/{}", "a".repeat(bytes))).await;
        rig.reply_text("", "two");
        assert_eq!(rig.get("/", "").await.text() == "one", hit, "{bytes}");
    }
}

#[tokio::test]
async fn a_304_updates_fields_and_freshness() {
    let rig = Rig::new();
    rig.reply_text(
        "cache-control: max-age=60; etag: \"a\"; x-a: 1; content-type: text/plain; age: 7",
        "one",
    );
    rig.get("/", "").await;
    rig.wait(61);
    rig.reply_text("304; cache-control: max-age=600; etag: \"a\"; x-a: 2; content-type: x/y", "");
    let got = rig.get("/", "").await;
    assert_eq!((got.text(), got.field("x-a"), got.field("age")), ("one", "2", "0"));
    assert_eq!(got.field("content-type"), "text/plain", "a 304 says nothing of the body");
    assert_eq!(got.field("cache-status"), "bentpipe; fwd=stale; fwd-status=304; ttl=600");
    rig.wait(599);
    assert_eq!(rig.get("/", "").await.outcome, Outcome::Hit);
    assert_eq!(rig.requests(), 2);
}

#[tokio::test]
async fn a_304_for_another_response_leads_to_a_full_request() {
    let rig = Rig::new();
    rig.reply_text("cache-control: max-age=60; etag: \"a\"", "one");
    rig.get("/", "").await;
    rig.wait(61);
    rig.reply_text("304; etag: \"b\"", "");
    rig.reply_text("200; etag: \"b\"; cache-control: max-age=60", "two");
    let got = rig.get("/", "").await;
    assert_eq!((got.text(), rig.requests()), ("two", 3));
    assert!(!rig.last_request().contains_key("if-none-match"));
    assert_eq!(rig.get("/", "").await.text(), "two");
}

#[tokio::test]
async fn a_clients_condition_is_evaluated_after_validation() {
    let rig = Rig::new();
    rig.reply_text("cache-control: max-age=60; etag: \"a\"", "one");
    rig.get("/", "").await;
    rig.wait(61);
    rig.reply_text("304; cache-control: max-age=60; etag: \"a\"", "");
    let got = rig.get("/", "if-none-match: \"old\"").await;
    assert_eq!((got.status.as_u16(), got.text()), (200, "one"));
    assert_eq!(rig.last_request()["if-none-match"], "\"a\"");
    // If nothing is stored, the origin evaluates the condition.
    rig.reply_text("304; etag: \"z\"", "");
    let got = rig.get("/other", "if-none-match: \"z\"").await;
    assert_eq!((got.status.as_u16(), got.outcome.saves_bytes()), (304, false));
}

#[tokio::test]
async fn age_and_cache_status_are_set() {
    let rig = Rig::new();
    rig.reply_text(
        "cache-control: max-age=60; age: 5; connection: close, x-hop; x-hop: 1; keep-alive: 5",
        "one",
    );
    let got = rig.get("/", "").await;
    assert_eq!(got.field("cache-status"), "bentpipe; fwd=uri-miss; ttl=55; stored");
    assert_eq!(
        (got.field("x-hop"), got.field("connection"), got.field("keep-alive")),
        ("", "", "")
    );
    rig.wait(10);
    let got = rig.get("/", "").await;
    assert_eq!((got.field("age"), got.field("cache-status")), ("15", "bentpipe; hit; ttl=45"));
    assert_eq!(got.field("date"), "Sun, 09 Sep 2001 01:46:40 GMT");
    assert_eq!(got.field("content-length"), "3");
    rig.reply_text("cache-control: no-store", "two");
    assert_eq!(rig.get("/x", "").await.field("cache-status"), "bentpipe; fwd=uri-miss");
    rig.reply_text("cache-control: no-store", "two");
    let got = rig.get("/", "authorization: x").await;
    assert_eq!(got.field("cache-status"), "bentpipe; fwd=request");
}

#[tokio::test]
async fn a_key_with_a_query_has_no_heuristic_freshness() {
    let rig = Rig::new();
    rig.reply_text("last-modified: Thu, 01 Jan 1998 00:00:00 GMT", "one");
    rig.get("/?a", "").await;
    rig.reply_text("304", "");
    assert_eq!(rig.get("/?a", "").await.outcome, Outcome::Validated);
}
