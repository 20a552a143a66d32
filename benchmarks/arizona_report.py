def print_report(lines):
    print(len(lines))


def draw(lines, path):
    pass
