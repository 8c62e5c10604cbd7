class OpenApiException(Exception): ...

class ApiException(OpenApiException):
    status: int | None
    reason: str | None
    body: str | None

    def __init__(
        self, status: int | None = None, reason: str | None = None, *, body: str | None = None
    ) -> None: ...
