"""One line for training loops of other libraries; import the module of the library that you use."""
