//! The asker's side: one kept connection to the keeper.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use crate::protocol::{Answer, LINE_LIMIT, Port, Request};
use crate::{KeeperError, Transport};

/// How long the keeper may take for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A connection to the keeper. The ports it holds are given back when it is dropped.
///
/// After an error with the code `unreachable` it connects anew with the next request.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: Option<UnixStream>,
}

impl Client {
    /// Connects to the keeper's unix socket.
    ///
    /// # Errors
    /// When nobody listens there.
    pub async fn connect(path: impl AsRef<Path>) -> Result<Client, KeeperError> {
        let path = path.as_ref().to_owned();
        let stream = open(&path).await?;
        Ok(Client { path, stream: Some(stream) })
    }

    /// Asks for the socket of a port. It is non-blocking and close-on-exec.
    ///
    /// # Errors
    /// The keeper's answer, or that it cannot be reached.
    pub async fn listen(&mut self, transport: Transport, port: u16) -> Result<OwnedFd, KeeperError> {
        match self.ask(Request::Listen(Port { transport, port })).await? {
            (Answer::Ok { .. }, Some(socket)) => Ok(socket),
            (Answer::Ok { .. }, None) => Err(KeeperError::unreachable("it answered without a socket")),
            (Answer::Error(error), _) => Err(error),
        }
    }

    /// Asks for the listening socket of a TCP port.
    ///
    /// # Errors
    /// As [`Client::listen`].
    pub async fn listen_tcp(&mut self, port: u16) -> Result<TcpListener, KeeperError> {
        self.listen(Transport::Tcp, port).await.map(TcpListener::from)
    }

    /// Tells the keeper that the port is not used here any more. Close the socket first.
    ///
    /// # Errors
    /// The keeper's answer, or that it cannot be reached.
    pub async fn release(&mut self, transport: Transport, port: u16) -> Result<(), KeeperError> {
        match self.ask(Request::Release(Port { transport, port })).await? {
            (Answer::Ok { .. }, _) => Ok(()),
            (Answer::Error(error), _) => Err(error),
        }
    }

    async fn ask(&mut self, request: Request) -> Result<(Answer, Option<OwnedFd>), KeeperError> {
        // Taken out while it is in use: a request that is dropped half way must not leave its answer for the next one.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => open(&self.path).await?,
        };
        let answer = tokio::time::timeout(ANSWER_LIMIT, converse(&mut stream, request))
            .await
            .map_err(|_| KeeperError::unreachable("no answer within 5 s"))?
            .map_err(KeeperError::unreachable)?;
        self.stream = Some(stream);
        Ok(answer)
    }
}

async fn open(path: &Path) -> Result<UnixStream, KeeperError> {
    UnixStream::connect(path).await.map_err(|e| KeeperError::unreachable(format!("{}: {e}", path.display())))
}

async fn converse(stream: &mut UnixStream, request: Request) -> io::Result<(Answer, Option<OwnedFd>)> {
    let mut line = serde_json::to_vec(&request).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let (mut answer, mut socket) = (Vec::new(), None);
    while answer.last() != Some(&b'\n') {
        stream.readable().await?;
        match stream.try_io(Interest::READABLE, || receive(stream, &mut answer, &mut socket)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if answer.len() > LINE_LIMIT => return Err(io::Error::other("an answer that is too long")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok((serde_json::from_slice(&answer).map_err(io::Error::other)?, socket))
}

fn receive(stream: &UnixStream, answer: &mut Vec<u8>, socket: &mut Option<OwnedFd>) -> io::Result<usize> {
    let mut bytes = [0; 512];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(stream, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut rights) = message {
            *socket = rights.next().or(socket.take());
        }
    }
    answer.extend_from_slice(&bytes[..received.bytes]);
    Ok(received.bytes)
}
