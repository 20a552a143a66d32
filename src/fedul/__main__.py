"""`python -m fedul` is the command line."""

from fedul.cli.app import main

if __name__ == "__main__":
    main()
