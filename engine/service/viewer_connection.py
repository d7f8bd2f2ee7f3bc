"""A viewer's WebSocket connection, when the server ends in the moment in which the viewer leaves."""

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class ViewerConnection(WebSocketsSansIOProtocol):
    """uvicorn's, which at shutdown says goodbye, but not to a client that said it first.

    Between a client's close frame and the last byte to it the connection still counts as one.
    uvicorn would send it a close frame of its own, which the protocol refuses with an exception, and
    that would end the server before its requests and its recording have ended.
    """

    def shutdown(self) -> None:
        """The server ends."""
        if self.transport.is_closing():
            # Who has closed reads no more: what is left to write would only be waited for.
            self.transport.abort()
        else:
            super().shutdown()
