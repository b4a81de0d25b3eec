//! Positions of gpsd.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bentpipe_probe::gps::{self, GpsCheck, GpsFix, MAX_LINE};

use crate::{clock, failure};

/// Wait for gpsd, which is on this machine as a rule.
const PATIENCE: Duration = Duration::from_secs(3);

/// A connection to gpsd. It stays open between checks, because gpsd switches the receiver off after its last client.
pub struct Receiver {
    gpsd: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

impl Receiver {
    /// Before the first check.
    pub fn new(gpsd: SocketAddr) -> Self {
        Self { gpsd, connection: None }
    }

    /// Requests the position. Failures are part of the result.
    pub fn check(&mut self) -> GpsCheck {
        let answer = self.poll();
        if answer.is_err() {
            self.connection = None;
        }
        match answer {
            Ok(Some(fix)) => GpsCheck { fix: Some(fix), failure: None },
            Ok(None) => GpsCheck { fix: None, failure: Some("no_fix".into()) },
            Err(error) => GpsCheck { fix: None, failure: Some(failure::name(&error)) },
        }
    }

    fn poll(&mut self) -> io::Result<Option<GpsFix>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => open(self.gpsd)?,
        };
        connection.get_mut().write_all(gps::POLL.as_bytes())?;
        let end = clock::boot() + PATIENCE;
        let mut line = Vec::new();
        loop {
            let left = end.saturating_sub(clock::boot());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            connection.get_ref().set_read_timeout(Some(left))?;
            line.clear();
            connection.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                return Err(io::Error::other("gpsd ends the connection, or is not gpsd"));
            }
            if let Some(answer) = gps::answer(&line) {
                self.connection = Some(connection);
                return Ok(answer);
            }
        }
    }
}

fn open(gpsd: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&gpsd, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    (&stream).write_all(gps::WATCH.as_bytes())?;
    Ok(BufReader::new(stream))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A daemon on loopback that answers each request for the position with the next text.
    fn daemon(answers: Vec<&'static str>) -> (SocketAddr, std::thread::JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (mut answers, mut connections) = (answers.into_iter().peekable(), 0);
            while answers.peek().is_some() {
                let (mut stream, _) = listener.accept().unwrap();
                connections += 1;
                stream.write_all(b"{\"class\":\"VERSION\"}\n").unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for line in lines.map_while(Result::ok) {
                    if line == gps::POLL.trim_end() {
                        let answer = answers.next().unwrap_or_default();
                        stream.write_all(answer.as_bytes()).unwrap();
                        if !answer.ends_with('\n') || answers.peek().is_none() {
                            break;
                        }
                    }
                }
            }
            connections
        });
        (address, thread)
    }

    #[test]
    fn positions_over_one_connection() {
        let position = "{\"class\":\"TPV\"}\n{\"class\":\"POLL\",\"tpv\":[{\"mode\":3,\"lat\":1,\"lon\":2}]}\n";
        let (gpsd, thread) =
            daemon(vec!["{\"class\":\"POLL\",\"tpv\":[]}\n", position, "cut", position]);
        let mut receiver = Receiver::new(gpsd);
        let found: Vec<_> = (0..4)
            .map(|_| {
                let check = receiver.check();
                (check.fix.map(|fix| fix.longitude), check.failure.is_some())
            })
            .collect();
        let (fix, none) = ((Some(2.0), false), (None, true));
        assert_eq!(found, [none, fix, none, fix]);
        assert_eq!(thread.join().unwrap(), 2, "another connection after the cut alone");
    }

    #[test]
    fn without_gpsd_a_check_fails() {
        // Nothing listens on port 9 of loopback.
        let check = Receiver::new(SocketAddr::from(([127, 0, 0, 1], 9))).check();
        assert_eq!(check.failure.as_deref(), Some("connection_refused"));
    }
}
