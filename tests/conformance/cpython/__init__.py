"""CPython's own tests (`Lib/test`), each test method compiled."""
