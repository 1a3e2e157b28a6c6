"""TLS between sources, receivers and stores: both ends show a certificate of one authority."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from onceq.errors import InvalidValue


class Certificates(msgspec.Struct, frozen=True, kw_only=True):
    """Files: of one's certificate, its key, and the authority whose certificates are accepted."""

    certificate: Path
    key: Path
    authority: Path

    def listening(self) -> ssl.SSLContext:
        """Return the context of who listens: nobody without a certificate is let in."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(made)
        made.verify_mode = ssl.CERT_REQUIRED
        return made

    def connecting(self) -> ssl.SSLContext:
        """Return the context of who connects: the name that it connects to must be certified."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._load(made)
        return made

    def _load(self, made: ssl.SSLContext) -> None:
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            made.load_cert_chain(self.certificate, self.key)
            made.load_verify_locations(self.authority)
        except (OSError, ssl.SSLError) as error:
            raise InvalidValue(
                f"the certificates {self.certificate}, {self.key}, {self.authority} cannot be used:"
                f" {error}"
            ) from error
