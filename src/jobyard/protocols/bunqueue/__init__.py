"""bunqueue's protocol over TCP: MessagePack frames in, engine verbs, MessagePack frames out."""
