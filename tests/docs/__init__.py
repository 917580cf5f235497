"""The blocks of README.md, README.ko.md and docs/, run as they stand on the page."""
