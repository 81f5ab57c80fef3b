"""The proving pipeline of one partition on one device: how it may run, what that takes, and running it."""
