//! Responses over HTTP/2 before the end of the upload.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::bench::{LOOPBACK, soon, start, until};
use crate::site::{NAME, certificate, config, connect};
use crate::web::head;

/// A body of `parts` × 64 KiB, and the number of parts that were read.
pub fn upload(parts: usize) -> (UploadBody, Arc<AtomicUsize>) {
    let read = Arc::<AtomicUsize>::default();
    let count = read.clone();
    let frames = stream::iter(0..parts).map(move |_| {
        count.fetch_add(1, SeqCst);
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(vec![b'x'; 64 << 10])))
    });
    (StreamBody::new(frames.boxed()), read)
}

pub type UploadBody =
    StreamBody<BoxStream<'static, Result<Frame<Bytes>, std::convert::Infallible>>>;

/// Many clients discard a response if their upload is reset.
#[tokio::test]
async fn an_upload_that_is_answered_early_over_http2_is_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let root = certificate(folder.path(), NAME);
    let origin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = format!("origin = \"http://{}\"", origin.local_addr().unwrap());
    let bench = start(&config(folder.path(), &site), LOOPBACK);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut tcp, _)) = origin.accept().await {
            head(&mut tcp).await.unwrap();
            let answer = "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\
                          Connection: close\r\n\r\nno";
            tcp.write_all(answer.as_bytes()).await.unwrap();
            tcp.shutdown().await.unwrap();
            kept.push(tcp);
        }
    });
    let tls = connect(&bench, &root, NAME, &["h2"]).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
            .await
            .unwrap();
    tokio::spawn(connection);
    for _ in 0..2 {
        let (body, read) = upload(48);
        let request = Request::post(format!("https://{NAME}/x")).version(Version::HTTP_2);
        let answer = soon("an answer", sender.send_request(request.body(body).unwrap()));
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::EXPECTATION_FAILED);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "no");
        until("all 3 MiB are read", || read.load(SeqCst) == 48).await;
    }
}
