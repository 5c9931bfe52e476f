"""`polybench view`: saved studies as pages for a browser on this machine; nothing is measured or written."""
