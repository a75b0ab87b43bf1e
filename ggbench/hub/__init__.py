"""The Hugging Face Hub: what a repo holds, the headers of its files by range, and downloads that lose nothing.

Everything that asks the network is here, and huggingface_hub is used nowhere else. What was learnt once is kept on
disk, so that the same question needs no network again.
"""
