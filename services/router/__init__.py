"""The router decides where and when a request runs; it never touches a token stream."""
