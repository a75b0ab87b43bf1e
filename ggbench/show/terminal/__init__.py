"""Everything that is shown in a terminal, as rich renderables; the caller prints them.

Every text goes in as `rich.text.Text`, never as markup: names come from files that nobody vouches for.
"""
